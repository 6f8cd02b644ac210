"""The signatures of webhooks: examples of the senders, what is refused, and which delivery it is."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.triggers.webhook_signatures import (
    SCHEMES,
    SignatureRefused,
    sign_request,
    verify_signature,
)

NOW = 1_700_000_000.0
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
    b"%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
schemes = pytest.mark.parametrize("scheme", list(SCHEMES))


def test_the_example_of_github_is_accepted() -> None:
    headers = {
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    }
    delivery = verify_signature("github", ["It's a Secret to Everybody"], headers, b"Hello, World!", NOW)
    assert delivery == ("72d3162e-cc78-11e3-81ab-4c9367dc0958", None)


def test_the_example_of_slack_is_accepted() -> None:
    headers = {
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        "X-Slack-Request-Timestamp": "1531420618",
    }
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert verify_signature("slack", [secret], headers, SLACK_BODY, 1531420618).signed_at == 1531420618


def test_the_example_of_standard_webhooks_is_accepted() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,bm9ldmVu v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    delivery = verify_signature("standard", [secret], headers, b'{"test": 2432232314}', 1614265330)
    assert delivery.id == "msg_p5jXN8AQM9LWM0D4loKWxJek"


@schemes
def test_what_a_scheme_signs_it_accepts_with_header_names_in_any_case(scheme: str) -> None:
    headers = sign_request(scheme, "s3cret", b'{"id": "evt_1"}', NOW, "delivery-1")
    for written in (headers, {name.upper(): value for name, value in headers.items()}):
        delivery = verify_signature(scheme, ["s3cret"], written, b'{"id": "evt_1"}', NOW + 1)
        assert delivery.signed_at in (None, NOW)


@schemes
def test_another_secret_is_refused(scheme: str) -> None:
    headers = sign_request(scheme, "another", b"{}", NOW, "delivery-1")
    with pytest.raises(SignatureRefused):
        verify_signature(scheme, ["s3cret"], headers, b"{}", NOW)


@schemes
def test_both_secrets_are_accepted_while_one_replaces_the_other(scheme: str) -> None:
    for secret in ("old", "new"):
        headers = sign_request(scheme, secret, b"{}", NOW, "delivery-1")
        assert verify_signature(scheme, ["new", "old"], headers, b"{}", NOW)


@schemes
def test_a_request_without_a_signature_is_refused_with_the_header_that_is_missing(scheme: str) -> None:
    with pytest.raises(SignatureRefused, match=r"^The header \S+ is missing$"):
        verify_signature(scheme, ["s3cret"], {"Content-Type": "application/json"}, b"{}", NOW)


@pytest.mark.parametrize("scheme", sorted(SCHEMES.keys() - {"gitlab", "telegram"}))  # they sign no body
@given(body=st.binary(max_size=50), other=st.binary(max_size=50))
def test_another_body_is_refused(scheme: str, body: bytes, other: bytes) -> None:
    headers = sign_request(scheme, "s3cret", body, NOW, "delivery-1")
    if body != other:
        with pytest.raises(SignatureRefused):
            verify_signature(scheme, ["s3cret"], headers, other, NOW)


@pytest.mark.parametrize("scheme", ["slack", "stripe", "standard", "generic"])
@pytest.mark.parametrize("seconds", [-301, 301, 86_400])
def test_an_old_or_future_signature_is_refused_with_the_distance(scheme: str, seconds: int) -> None:
    headers = sign_request(scheme, "s3cret", b"{}", NOW, "delivery-1")
    with pytest.raises(SignatureRefused, match=rf"{abs(seconds)} s away .* at most 300 s"):
        verify_signature(scheme, ["s3cret"], headers, b"{}", NOW + seconds)
    assert verify_signature(scheme, ["s3cret"], headers, b"{}", NOW + seconds, tolerance=90_000)


@pytest.mark.parametrize("scheme", ["slack", "stripe", "standard", "generic"])
def test_the_time_cannot_be_changed_without_the_secret(scheme: str) -> None:
    headers = sign_request(scheme, "s3cret", b"{}", NOW - 1000, "delivery-1")
    later = {name: value.replace(str(int(NOW - 1000)), str(int(NOW))) for name, value in headers.items()}
    assert later != headers
    with pytest.raises(SignatureRefused, match="does not match"):
        verify_signature(scheme, ["s3cret"], later, b"{}", NOW)


@pytest.mark.parametrize("stamp", ["", "soon", "-1", "1e9", "1" * 13, "١"])
def test_a_time_that_is_not_unix_seconds_is_refused(stamp: str) -> None:
    headers = {"X-Slack-Signature": "v0=00", "X-Slack-Request-Timestamp": stamp}
    with pytest.raises(SignatureRefused, match="X-Slack-Request-Timestamp"):
        verify_signature("slack", ["s3cret"], headers, b"", NOW)


@pytest.mark.parametrize("scheme", ["standard", "generic"])
def test_an_id_cannot_take_over_part_of_the_body(scheme: str) -> None:
    headers = sign_request(scheme, "s3cret", b"a.b", NOW, "one")
    moved = {name: "one.a" if value == "one" else value for name, value in headers.items()}
    with pytest.raises(SignatureRefused, match="full stop"):
        verify_signature(scheme, ["s3cret"], moved, b"b", NOW)


@schemes
@given(text=st.text(max_size=40))
def test_any_header_is_refused_and_raises_nothing_else(scheme: str, text: str) -> None:
    headers = dict.fromkeys(sign_request(scheme, "s3cret", b"{}", NOW, "delivery-1"), text)
    with pytest.raises(SignatureRefused):
        verify_signature(scheme, ["s3cret"], headers, b"{}", NOW)


@schemes
@pytest.mark.parametrize("secrets", [[], [""], ["one", ""]])
def test_a_missing_secret_accepts_nothing(scheme: str, secrets: list[str]) -> None:
    with pytest.raises(ValueError, match="needs a secret"):
        verify_signature(scheme, secrets, {}, b"{}", NOW)


def test_an_unknown_signature_is_named_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"Unknown signature 'svn'. Available: github, gitlab, slack"):
        verify_signature("svn", ["s3cret"], {}, b"{}", NOW)


@pytest.mark.parametrize("scheme", ["github", "gitlab", "standard", "generic"])
def test_the_id_of_a_delivery_is_that_of_its_header(scheme: str) -> None:
    headers = sign_request(scheme, "s3cret", b"{}", NOW, "delivery-1")
    assert verify_signature(scheme, ["s3cret"], headers, b"{}", NOW).id == "delivery-1"


@pytest.mark.parametrize(("scheme", "field"), [("slack", "event_id"), ("stripe", "id")])
def test_a_repeated_delivery_has_the_id_of_its_body_though_it_is_signed_again(
    scheme: str, field: str
) -> None:
    body = json.dumps({field: "Ev1"}).encode()
    for at in (NOW, NOW + 60):
        headers = sign_request(scheme, "s3cret", body, at)
        assert verify_signature(scheme, ["s3cret"], headers, body, at).id == "Ev1"


@schemes
def test_without_an_id_the_hash_of_what_is_signed_is_the_id(scheme: str) -> None:
    headers = sign_request(scheme, "s3cret", b"text", NOW)
    delivery = verify_signature(scheme, ["s3cret"], headers, b"text", NOW)
    assert delivery.id
    assert verify_signature(scheme, ["s3cret"], headers, b"text", NOW) == delivery


@pytest.mark.parametrize("id", ["x" * 201, "a\tb"])
def test_an_id_that_is_long_or_not_printable_is_replaced_by_its_hash(id: str) -> None:
    headers = sign_request("github", "s3cret", b"{}", NOW, id)
    delivery = verify_signature("github", ["s3cret"], headers, b"{}", NOW)
    assert delivery.id == hashlib.sha256(id.encode()).hexdigest()


def test_a_secret_of_standard_webhooks_that_is_not_base64_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ValueError, match="must continue in base64"):
        sign_request("standard", "whsec_ü", b"{}", NOW)
