"""The signatures of webhooks: who sent a request, when, and which delivery it is.

Every function is pure: it gets the headers, the body and the time, and knows neither HTTP nor a store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nerve.errors import NerveError

TOLERANCE_SECONDS = 300.0
"""How far the time in a signature may be from the clock."""

MAX_DELIVERY_CHARS = 200
"""A longer delivery id is replaced by its hash."""

TELEGRAM_HEADER = "X-Telegram-Bot-Api-Secret-Token"
_TIMESTAMP = re.compile(r"\d{1,12}", re.ASCII)


class SignatureRefused(NerveError):
    """A request is not signed with a secret of the webhook, or its signature is too old."""


class Delivery(NamedTuple):
    """A request whose signature is valid."""

    id: str
    """The same for every repetition of the delivery by its sender."""
    signed_at: float | None
    """The time in the signature; None in a scheme without one."""


class Scheme(NamedTuple):
    """How a sender signs. The functions get lower-case headers."""

    verify: Callable[[Sequence[bytes], Mapping[str, str], bytes], float | None]
    """Raise SignatureRefused, or return the time that is signed."""
    sign: Callable[[bytes, bytes, float, str], dict[str, str]]
    """Return the headers of a request with a secret, body, time and delivery id."""
    delivery_header: str
    """The header with the id of the delivery, or ""."""
    body_id: str
    """The field of a JSON body with the id of the delivery, or ""."""


def verify_signature(
    scheme: str,
    secrets: Sequence[str | bytes],
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> Delivery:
    """Return the delivery of a request; SignatureRefused if none of the secrets has signed it.

    Several secrets are accepted while a secret is replaced. A signed time must be within `tolerance` seconds
    of `now`.
    """
    kind = find_scheme(scheme)
    keys = [secret.encode() if isinstance(secret, str) else secret for secret in secrets]
    if not keys or not all(keys):
        raise ValueError(f"A webhook with the signature '{scheme}' needs a secret that is not empty")
    lower = {name.lower(): value for name, value in headers.items()}
    signed_at = kind.verify(keys, lower, body)
    if signed_at is not None and abs(now - signed_at) > tolerance:
        raise SignatureRefused(
            f"The signature is {abs(now - signed_at):.0f} s away from the time of this machine; at most"
            f" {tolerance:.0f} s are accepted"
        )
    return Delivery(find_delivery_id(kind, lower, body, signed_at), signed_at)


def sign_request(
    scheme: str, secret: str | bytes, body: bytes, now: float, delivery: str = ""
) -> dict[str, str]:
    """Return the headers with which a sender of the scheme signs a body."""
    key = secret.encode() if isinstance(secret, str) else secret
    return find_scheme(scheme).sign(key, body, now, delivery)


def find_scheme(name: str) -> Scheme:
    """Return the scheme of a name; ValueError for an unknown one."""
    if (scheme := SCHEMES.get(name)) is None:
        raise ValueError(f"Unknown signature '{name}'. Available: {', '.join(SCHEMES)}")
    return scheme


def find_delivery_id(scheme: Scheme, headers: Mapping[str, str], body: bytes, signed_at: float | None) -> str:
    """Return the id that the sender gives the delivery; without one, a hash of what it signed."""
    id = headers.get(scheme.delivery_header, "") if scheme.delivery_header else ""
    if not id and scheme.body_id:
        id = _read_body_id(body, scheme.body_id)
    if id:
        is_short = len(id) <= MAX_DELIVERY_CHARS and id.isprintable()
        return id if is_short else hashlib.sha256(id.encode(errors="replace")).hexdigest()
    signed = b"" if signed_at is None else b"%d." % signed_at
    return hashlib.sha256(signed + body).hexdigest()


def _read_body_id(body: bytes, field: str) -> str:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    id = value.get(field) if isinstance(value, dict) else None
    return str(id) if isinstance(id, str | int) and not isinstance(id, bool) else ""


def _hex_digest(key: bytes, *parts: bytes) -> str:
    return hmac.new(key, b"".join(parts), hashlib.sha256).hexdigest()


def _base64_digest(key: bytes, *parts: bytes) -> str:
    return base64.b64encode(hmac.new(key, b"".join(parts), hashlib.sha256).digest()).decode()


def _require_header(headers: Mapping[str, str], name: str) -> str:
    if not (value := headers.get(name.lower(), "").strip()):
        raise SignatureRefused(f"The header {name} is missing")
    return value


def _read_timestamp(text: str, source: str) -> float:
    if not _TIMESTAMP.fullmatch(text):
        raise SignatureRefused(f"{source} must have the time as Unix seconds")
    return float(text)


def _check_signed_id(id: str, header: str) -> str:
    """Return an id that is signed before the body; with a full stop, part of the body could pass as id."""
    if "." in id:
        raise SignatureRefused(f"{header} must not contain a full stop")
    return id


def _require_match(given: Sequence[str], expected: Sequence[str], header: str) -> None:
    """Raise SignatureRefused unless a given signature is one of the expected; the time shows nothing."""
    pairs = [(one.encode(errors="replace"), other.encode()) for one in given[:20] for other in expected]
    if not any(hmac.compare_digest(one, other) for one, other in pairs):
        raise SignatureRefused(f"The signature in {header} does not match the body and the secret")


def _verify_github(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    given = _require_header(headers, "X-Hub-Signature-256")
    _require_match([given], [f"sha256={_hex_digest(key, body)}" for key in keys], "X-Hub-Signature-256")
    return None


def _sign_github(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    return {
        "X-Hub-Signature-256": f"sha256={_hex_digest(key, body)}",
        **({"X-GitHub-Delivery": delivery} if delivery else {}),
    }


def _verify_gitlab(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    _verify_token(keys, headers, "X-Gitlab-Token")
    return None


def _verify_token(keys: Sequence[bytes], headers: Mapping[str, str], header: str) -> None:
    given = _require_header(headers, header)
    # The digests are compared, so that not even the length of the token shows.
    digests = [hashlib.sha256(key).hexdigest() for key in keys]
    given_digest = hashlib.sha256(given.encode(errors="replace")).hexdigest()
    if not any(hmac.compare_digest(given_digest, digest) for digest in digests):
        raise SignatureRefused(f"The token in {header} is not that of the webhook")


def _sign_gitlab(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    return {"X-Gitlab-Token": key.decode(), **({"Idempotency-Key": delivery} if delivery else {})}


def _verify_telegram(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    _verify_token(keys, headers, TELEGRAM_HEADER)
    return None


def _sign_telegram(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    return {TELEGRAM_HEADER: key.decode()}


def _verify_slack(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    given = _require_header(headers, "X-Slack-Signature")
    stamp = _require_header(headers, "X-Slack-Request-Timestamp")
    at = _read_timestamp(stamp, "X-Slack-Request-Timestamp")
    expected = [f"v0={_hex_digest(key, b'v0:', stamp.encode(), b':', body)}" for key in keys]
    _require_match([given], expected, "X-Slack-Signature")
    return at


def _sign_slack(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    stamp = b"%d" % now
    return {
        "X-Slack-Request-Timestamp": stamp.decode(),
        "X-Slack-Signature": f"v0={_hex_digest(key, b'v0:', stamp, b':', body)}",
    }


def _verify_stripe(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    fields = [part.strip().partition("=") for part in _require_header(headers, "Stripe-Signature").split(",")]
    stamp = next((value for name, _, value in fields if name == "t"), "")
    at = _read_timestamp(stamp, "t= of Stripe-Signature")
    given = [value for name, _, value in fields if name == "v1"]
    _require_match(
        given, [_hex_digest(key, stamp.encode(), b".", body) for key in keys], "v1= of Stripe-Signature"
    )
    return at


def _sign_stripe(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    stamp = b"%d" % now
    return {"Stripe-Signature": f"t={stamp.decode()},v1={_hex_digest(key, stamp, b'.', body)}"}


def _standard_key(key: bytes) -> bytes:
    """Return the key of a Standard Webhooks secret, which is `whsec_` and base64, or any other text."""
    if not key.startswith(b"whsec_"):
        return key
    try:
        return base64.b64decode(key.removeprefix(b"whsec_"), validate=True)
    except binascii.Error:
        raise ValueError("A secret that begins with 'whsec_' must continue in base64") from None


def _verify_standard(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    id = _check_signed_id(_require_header(headers, "webhook-id"), "webhook-id")
    stamp = _require_header(headers, "webhook-timestamp")
    at = _read_timestamp(stamp, "webhook-timestamp")
    given = [part for part in _require_header(headers, "webhook-signature").split() if part.startswith("v1,")]
    signed = f"{id}.{stamp}.".encode(errors="replace")
    expected = [f"v1,{_base64_digest(_standard_key(key), signed, body)}" for key in keys]
    _require_match(given, expected, "webhook-signature")
    return at


def _sign_standard(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    stamp = f"{int(now)}"
    id = delivery or "msg_" + hashlib.sha256(stamp.encode() + body).hexdigest()[:24]
    signature = _base64_digest(_standard_key(key), f"{id}.{stamp}.".encode(), body)
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": f"v1,{signature}"}


def _verify_generic(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> float | None:
    stamp = _require_header(headers, "X-Nerve-Timestamp")
    at = _read_timestamp(stamp, "X-Nerve-Timestamp")
    given = _require_header(headers, "X-Nerve-Signature")
    id = _check_signed_id(headers.get("x-nerve-delivery", ""), "X-Nerve-Delivery")
    signed = f"{stamp}.{id}.".encode(errors="replace")
    expected = [f"sha256={_hex_digest(key, signed, body)}" for key in keys]
    _require_match([given], expected, "X-Nerve-Signature")
    return at


def _sign_generic(key: bytes, body: bytes, now: float, delivery: str) -> dict[str, str]:
    stamp = f"{int(now)}"
    return {
        "X-Nerve-Timestamp": stamp,
        **({"X-Nerve-Delivery": delivery} if delivery else {}),
        "X-Nerve-Signature": f"sha256={_hex_digest(key, f'{stamp}.{delivery}.'.encode(), body)}",
    }


SCHEMES: dict[str, Scheme] = {
    "github": Scheme(_verify_github, _sign_github, "x-github-delivery", ""),
    "gitlab": Scheme(_verify_gitlab, _sign_gitlab, "idempotency-key", ""),
    "slack": Scheme(_verify_slack, _sign_slack, "", "event_id"),
    "telegram": Scheme(_verify_telegram, _sign_telegram, "", "update_id"),
    "stripe": Scheme(_verify_stripe, _sign_stripe, "", "id"),
    "standard": Scheme(_verify_standard, _sign_standard, "webhook-id", ""),
    "generic": Scheme(_verify_generic, _sign_generic, "x-nerve-delivery", ""),
}
"""The schemes by the name that a trigger uses. `standard` is that of standardwebhooks.com."""
