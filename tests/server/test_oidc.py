"""People sign in to the page with OpenID Connect: against a provider on loopback that signs real JWTs."""

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from server.conftest import Served, serving
from server.oidc_stand_in import CLIENT_ID, CLIENT_SECRET, StandInProvider

CROSS_SITE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "accept": "text/html"}


@pytest.fixture
async def provider() -> AsyncIterator[StandInProvider]:
    async with StandInProvider().open() as provider:
        yield provider


def configure(folder: Path, provider: StandInProvider, **settings: Any) -> None:
    (folder / ".nerve").mkdir(exist_ok=True)
    oidc = {"issuer": provider.issuer, "client_id": CLIENT_ID, "client_secret": {"env": "OIDC_SECRET"}}
    config = {"sign_in": {"oidc": oidc | {"name": "Example Login"} | settings}}
    (folder / ".nerve" / "config.json").write_text(json.dumps(config))


@pytest.fixture
async def page(
    tmp_path: Path, provider: StandInProvider, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    monkeypatch.setenv("OIDC_SECRET", CLIENT_SECRET)
    configure(tmp_path, provider)
    async with serving(tmp_path) as served:
        await served.api.add_person(person="ann", roles=["lead"], contacts={"email": "Ann@example.com"})
        yield served


async def come_back(browser: httpx2.AsyncClient, **change: str) -> httpx2.Response:
    """Sign in with the provider, and return the reply of the server; `change` changes the way back."""
    begun = await browser.get("/sign-in/oidc", headers={"accept": "text/html"})
    assert begun.status_code == 303, begun.text
    async with httpx2.AsyncClient(trust_env=False) as other:
        reply = await other.get(begun.headers["location"])
    target = urlsplit(reply.headers["location"])
    query = {name: values[0] for name, values in parse_qs(target.query).items()} | change
    return await browser.get(target.path, params=query, headers=CROSS_SITE)


async def refusal(page: Served, **change: str) -> tuple[int, str]:
    """Return the status and the text of a refused sign-in, after which the browser is not signed in."""
    async with page.client(None) as browser:
        reply = await come_back(browser, **change)
        assert (await browser.get("/inbox", headers={"accept": "text/html"})).status_code == 401
        return reply.status_code, reply.text


async def test_a_person_answers_in_their_own_name_by_oidc(page: Served) -> None:
    async with page.client(None) as browser:
        reply = await come_back(browser)
        assert (reply.status_code, "url=/inbox" in reply.text) == (200, True)
        cookies = reply.headers.get_list("set-cookie")
        assert any("HttpOnly" in cookie and "SameSite=Strict" in cookie for cookie in cookies)
        inbox = await browser.get("/inbox", headers={"accept": "text/html"})
        assert (inbox.status_code, "ann" in inbox.text) == (200, True)
        run = (await page.api.start(workflow="ask", wait=True)).run_id
        answered = await browser.post(
            "/api/answers", json={"run": run, "answer": "yes"}, headers={"x-nerve": "1"}
        )
        told = answered.json()
        assert (told["by"], told["via"], told["address"]) == ("person:ann", "oidc", "127.0.0.1")
        audited = [entry for entry in (await page.api.audit(run=run)).entries if entry.action == "answer"]
        assert [(entry.person, entry.via) for entry in audited] == [("ann", "oidc")]
        signed_out = await browser.post("/sign-out", headers={"origin": page.url})
        assert signed_out.status_code == 303
        assert (await browser.get("/inbox")).status_code == 401


async def test_the_sign_in_page_names_the_provider(page: Served, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    async with (
        serving(plain) as served,
        page.client(None) as browser,
        served.client(None) as other,
    ):
        shown = (await browser.get("/")).text
        assert 'href="/sign-in/oidc"' in shown
        assert "Sign in with Example Login" in shown
        assert "oidc" not in (await other.get("/")).text
        assert (await other.get("/sign-in/oidc", headers={"accept": "text/html"})).status_code == 404


async def test_disabling_a_person_ends_their_browsers(page: Served) -> None:
    async with page.client(None) as browser:
        await come_back(browser)
        await page.api.change_person(person="ann", disabled=True)
        assert (await browser.get("/inbox")).status_code == 401
    status, text = await refusal(page)
    assert (status, "is not a person of this project" in text) == (403, True)


async def test_a_person_who_is_not_known_is_told_who_can_add_them(
    page: Served, provider: StandInProvider
) -> None:
    provider.claims["email"] = "eve@example.com"
    status, text = await refusal(page)
    assert status == 403
    assert "&#39;eve@example.com&#39; is not a person of this project." in text
    assert "nerve people change NAME --contact email=eve@example.com" in text


def set_claim(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda claims: claims.update({name: value})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (set_claim("nonce", "x"), "The ID token belongs to another sign-in: its nonce is wrong."),
        (lambda claims: claims.pop("nonce"), "The ID token is not valid (missing_claim)."),
        (set_claim("exp", int(time.time()) - 3600), "The ID token has expired."),
        (set_claim("aud", "another"), "The ID token is for another client."),
        (set_claim("aud", ["another", CLIENT_ID]), "The ID token is not valid (missing_claim)."),
        (set_claim("azp", "another"), "The ID token is for another client."),
        (set_claim("iss", "https://evil.example.com"), "The ID token is of another provider."),
        (set_claim("nbf", int(time.time()) + 3600), "The ID token is not valid yet."),
        (set_claim("email_verified", False), "The provider has not verified the e-mail address."),
        (lambda claims: claims.pop("email"), "The ID token has no claim &#39;email&#39;."),
    ],
)
async def test_a_token_that_is_not_for_this_sign_in_is_refused(
    page: Served, provider: StandInProvider, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    provider.change_token = change
    status, text = await refusal(page)
    assert (status, problem in text) == (403, True), text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"state": "x"}, "its state is wrong"),
        ({"code": "x"}, "The provider refused the code (invalid_grant)."),
        ({"iss": "https://evil.example.com"}, "The reply is of another provider."),
        ({"error": "access_denied"}, "The provider has not signed you in (access_denied)."),
        ({"error": "<script>"}, "The provider has not signed you in (unknown error)."),
    ],
)
async def test_a_changed_way_back_is_refused(page: Served, change: dict[str, str], problem: str) -> None:
    status, text = await refusal(page, **change)
    assert (status, problem in text) == (403, True), text


async def test_a_reply_is_for_the_browser_that_has_asked_and_for_one_time(page: Served) -> None:
    async with page.client(None) as browser, page.client(None) as other:
        begun = await browser.get("/sign-in/oidc")
        async with httpx2.AsyncClient(trust_env=False) as client:
            target = urlsplit((await client.get(begun.headers["location"])).headers["location"])
        address = f"{target.path}?{target.query}"
        stolen = await other.get(address, headers=CROSS_SITE)
        assert (stolen.status_code, "begun in another browser" in stolen.text) == (403, True)
        assert (await browser.get(address, headers=CROSS_SITE)).status_code == 200
        again = await browser.get(address, headers=CROSS_SITE)
        assert (again.status_code, "begun in another browser" in again.text) == (403, True)


async def test_a_forged_cookie_is_refused(page: Served) -> None:
    async with page.client(None) as browser:
        name = f"nerve_{page.port}_oidc"
        browser.cookies.set(name, "e30.0000")
        reply = await browser.get("/sign-in/oidc/callback?state=", headers=CROSS_SITE)
        assert (reply.status_code, "begun in another browser" in reply.text) == (403, True)
        browser.cookies.set(f"nerve_{page.port}", f"person:ann/oidc.{int(time.time()) + 99}.x.0000")
        assert (await browser.get("/inbox")).status_code == 401


async def test_new_keys_of_the_provider_are_read_when_a_token_names_them(
    page: Served, provider: StandInProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerve.server.oidc_provider.MIN_KEY_AGE_S", 0.0)
    for reads in (1, 2, 3):
        async with page.client(None) as browser:
            assert (await come_back(browser)).status_code == 200
        assert provider.key_reads == reads
        async with page.client(None) as browser:
            assert (await come_back(browser)).status_code == 200
        assert provider.key_reads == reads
        provider.rotate_key()


async def test_other_keys_and_other_algorithms_are_refused(page: Served, provider: StandInProvider) -> None:
    kid, other = provider.key.kid, RSAKey.generate_key(2048, {"kid": provider.key.kid})
    public = provider.key.as_pem(private=False)

    def encode_parts(header: dict[str, Any], claims: dict[str, Any]) -> str:
        parts = [json.dumps(part).encode() for part in (header, claims)]
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)

    def sign_with_public_key(claims: dict[str, Any]) -> str:
        """Use the public key as the secret of a symmetric signature: the oldest attack on JWT."""
        text = encode_parts({"alg": "HS256", "kid": kid}, claims)
        signature = hmac.digest(public, text.encode(), "sha256")
        return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"

    for encode in (
        lambda claims: jwt.encode({"alg": "RS256", "kid": kid}, claims, other),
        sign_with_public_key,
        lambda claims: encode_parts({"alg": "none"}, claims) + ".",
    ):
        provider.encode_token = encode
        status, text = await refusal(page)
        assert (status, "The signature of the ID token is not valid." in text) == (403, True), text


async def test_a_provider_that_cannot_be_reached_is_named(tmp_path: Path, provider: StandInProvider) -> None:
    provider.issuer = "http://127.0.0.1:1"
    configure(tmp_path, provider)
    async with serving(tmp_path) as served, served.client(None) as browser:
        reply = await browser.get("/sign-in/oidc", headers={"accept": "text/html"})
        assert reply.status_code == 503
        assert "The provider http://127.0.0.1:1 cannot be reached" in reply.text
        assert "sign in with a token" in reply.text


async def test_a_wrong_issuer_and_a_missing_secret_are_named(
    tmp_path: Path, provider: StandInProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OIDC_SECRET", raising=False)
    configure(tmp_path, provider)
    async with serving(tmp_path) as served:
        status, text = await refusal(served)
        assert (status, "The environment variable OIDC_SECRET is not set." in text) == (503, True)
    configure(tmp_path, provider, issuer=provider.issuer + "/")
    async with serving(tmp_path) as served, served.client(None) as browser:
        reply = await browser.get("/sign-in/oidc", headers={"accept": "text/html"})
        assert "The provider calls itself" in reply.text


async def test_another_claim_a_proxy_and_a_secret_in_the_form(
    tmp_path: Path, provider: StandInProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_SECRET", CLIENT_SECRET)
    provider.auth_methods = ["client_secret_post"]
    provider.claims = {"preferred_username": "ada"}
    configure(tmp_path, provider, claim="preferred_username", scopes=["openid", "profile"])
    config = json.loads((tmp_path / ".nerve" / "config.json").read_text())
    address = "https://nerve.example.com/n"
    (tmp_path / ".nerve" / "config.json").write_text(json.dumps(config | {"public_url": address}))
    async with serving(tmp_path, prefix="/n") as served, served.client(None) as browser:
        await served.api.add_person(person="ada", contacts={"oidc": "ada"})
        begun = await browser.get("/sign-in/oidc")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        assert query["redirect_uri"] == [f"{address}/sign-in/oidc/callback"]
        assert (await come_back(browser)).status_code == 200
        assert (await browser.get("/inbox", headers={"accept": "text/html"})).status_code == 200


async def test_another_site_opens_no_other_page(page: Served) -> None:
    async with page.client(None) as browser:
        await come_back(browser)
        for path in ("/inbox", "/sign-in/oidc"):
            assert (await browser.get(path, headers=CROSS_SITE)).status_code == 403
        posted = await browser.post("/sign-in/oidc/callback", headers=CROSS_SITE)
        assert posted.status_code == 403
