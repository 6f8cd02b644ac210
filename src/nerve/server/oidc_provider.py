"""A provider of OpenID Connect: its documents, its keys, and the identities that it confirms.

The client is authlib, an extra, which checks ID tokens; requests use the HTTP client of Nerve.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

from nerve.errors import NerveError
from nerve.notifications.delivery import ERROR_CODE, DeliveryFailed, HttpSender, Reply, SecretReader

if TYPE_CHECKING:
    from nerve.project.sign_in_settings import OidcSettings

METADATA_PATH = "/.well-known/openid-configuration"
REQUIRED_METADATA = ("authorization_endpoint", "token_endpoint", "jwks_uri")
DOCUMENT_TTL_S = 3600.0
"""Seconds for which the documents of a provider are used."""
MIN_KEY_AGE_S = 5.0
"""Seconds before the keys are read again because a token names an unknown one."""
CLOCK_LEEWAY_S = 30
"""Seconds by which the clocks may differ."""
REQUEST_TIMEOUT_S = 10.0
SIGNATURE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Only those with a public key: the client has no other key of the provider."""
RETRY_FIX = "Try again later, or sign in with a token."
INSTALL_HINT = "Install it: pip install '.[oidc]' in the clone of Nerve"


class SignInRefused(NerveError):
    """A sign-in has failed; the message says why, without secrets.

    `is_provider` says that the provider, or its settings, are the cause.
    """

    def __init__(self, problem: str, fix: str = "Sign in again.", *, is_provider: bool = False) -> None:
        super().__init__(problem)
        self.fix, self.is_provider = fix, is_provider


class OidcProvider:
    """One provider, whose documents are read when they are needed."""

    def __init__(self, settings: OidcSettings, secrets: SecretReader) -> None:
        self.settings = settings
        self._secrets = secrets
        self._lock = asyncio.Lock()
        self._metadata: Mapping[str, Any] = {}
        self._keys: Mapping[str, Any] = {}
        self._metadata_at = self._keys_at = float("-inf")

    # -- documents -----------------------------------------------------------------------------------

    async def read_metadata(self) -> Mapping[str, Any]:
        """Return the configuration that the provider publishes; SignInRefused says why it is not usable."""
        async with self._lock:
            if time.monotonic() - self._metadata_at > DOCUMENT_TTL_S:
                issuer = self.settings.issuer
                found = await self._read_document(issuer.rstrip("/") + METADATA_PATH)
                if found.get("issuer") != issuer:
                    problem = f"The provider calls itself '{found.get('issuer')}', not '{issuer}'"
                    raise SignInRefused(problem, "Correct issuer in .nerve/config.json.", is_provider=True)
                if missing := [name for name in REQUIRED_METADATA if not isinstance(found.get(name), str)]:
                    raise SignInRefused(f"The provider does not name its {missing[0]}", is_provider=True)
                self._metadata, self._metadata_at = found, time.monotonic()
            return self._metadata

    async def _read_keys(self, *, again: bool = False) -> Mapping[str, Any]:
        """Return the keys with which the provider signs; `again` reads them unless they were just read."""
        metadata = await self.read_metadata()
        async with self._lock:
            age = time.monotonic() - self._keys_at
            if age > (MIN_KEY_AGE_S if again else DOCUMENT_TTL_S):
                self._keys = await self._read_document(metadata["jwks_uri"])
                self._keys_at = time.monotonic()
            return self._keys

    async def _read_document(self, url: str) -> dict[str, Any]:
        return self._read_object(await self._request("GET", url, b"", {}))

    async def _request(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        named = {"Accept": "application/json", "User-Agent": "Nerve", **headers}
        http = HttpSender()  # sign-ins are rare, so no connection stays open between them
        try:
            return await http.request(method, url, body, named, REQUEST_TIMEOUT_S)
        except DeliveryFailed as error:
            problem = f"The provider {self.settings.issuer} cannot be reached: {error}"
            raise SignInRefused(problem, RETRY_FIX, is_provider=True) from None
        finally:
            await http.close()

    def _read_object(self, reply: Reply) -> dict[str, Any]:
        try:
            data = json.loads(reply.text) if reply.status == 200 else None
        except ValueError:
            data = None
        if not isinstance(data, dict):
            problem = f"The provider {self.settings.issuer} answered {reply.status} without a JSON object"
            raise SignInRefused(problem, RETRY_FIX, is_provider=True)
        return data

    # -- signing in ----------------------------------------------------------------------------------

    async def make_sign_in_url(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return the address at which a person signs in with the provider."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        metadata = await self.read_metadata()
        url: str = prepare_grant_uri(
            metadata["authorization_endpoint"],
            self.settings.client_id,
            "code",
            redirect_uri,
            " ".join(self.settings.scopes),
            state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        return url

    async def read_identity(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> Mapping[str, Any]:
        """Return the claims of the ID token for a code; SignInRefused says what is wrong with them."""
        token = await self._exchange_code(code, redirect_uri, verifier)
        return await self.verify_token(token, nonce)

    async def _exchange_code(self, code: str, redirect_uri: str, verifier: str) -> str:
        metadata, client_id = await self.read_metadata(), self.settings.client_id
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if (source := self.settings.client_secret) is not None:
            try:
                secret = self._secrets.read(source)
            except DeliveryFailed as error:
                raise SignInRefused(str(error), "Set it where the server runs.", is_provider=True) from None
            methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in methods:
                pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
                headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
            else:
                fields["client_secret"] = secret
        reply = await self._request("POST", metadata["token_endpoint"], urlencode(fields).encode(), headers)
        if reply.status != 200:
            raise SignInRefused(f"The provider refused the code ({find_error_code(reply)})")
        token = self._read_object(reply).get("id_token")
        if not isinstance(token, str):
            raise SignInRefused("The provider sent no ID token", is_provider=True)
        return token

    async def verify_token(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that the provider has signed for this sign-in."""
        from joserfc.errors import JoseError

        try:
            claims, header = decode_token(token, await self._read_keys())
        except (JoseError, ValueError):
            # The provider may have changed its keys since they were read.
            try:
                claims, header = decode_token(token, await self._read_keys(again=True))
            except (JoseError, ValueError):
                raise SignInRefused("The signature of the ID token is not valid") from None
        check_claims(claims, header, self.settings, nonce)
        return claims

    def find_name(self, claims: Mapping[str, Any]) -> str:
        """Return the value of the claim that names the person; SignInRefused if it is not usable."""
        claim = self.settings.claim
        value = claims.get(claim)
        if not isinstance(value, str) or not value:
            raise SignInRefused(
                f"The ID token has no claim '{claim}'", "Check claim and scopes in .nerve/config.json."
            )
        if claim == "email" and claims.get("email_verified") is False:
            raise SignInRefused("The provider has not verified the e-mail address")
        return value


def decode_token(token: str, keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the claims and the header of a token that one of the keys has signed."""
    from joserfc import jwt
    from joserfc.jwk import KeySet

    decoded = jwt.decode(token, KeySet.import_key_set({"keys": keys.get("keys", [])}), SIGNATURE_ALGORITHMS)
    return decoded.claims, decoded.header


def check_claims(claims: dict[str, Any], header: dict[str, Any], settings: OidcSettings, nonce: str) -> None:
    """Raise SignInRefused for a token of another provider, client, sign-in or time."""
    from authlib.oidc.core import CodeIDToken
    from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError

    options = {
        "iss": {"essential": True, "value": settings.issuer},
        "aud": {"essential": True, "value": settings.client_id},
        "nonce": {"essential": True, "value": nonce},
    }
    parameters = {"nonce": nonce, "client_id": settings.client_id}
    try:
        CodeIDToken(claims, header, options, parameters).validate(leeway=CLOCK_LEEWAY_S)
    except ExpiredTokenError:
        raise SignInRefused("The ID token has expired") from None
    except InvalidClaimError as error:
        problems = {
            "iss": "The ID token is of another provider",
            "aud": "The ID token is for another client",
            "azp": "The ID token is for another client",
            "nbf": "The ID token is not valid yet",
            "iat": "The ID token is not valid yet",
            "nonce": "The ID token belongs to another sign-in: its nonce is wrong",
        }
        text = problems.get(error.claim, f"The claim '{error.claim}' of the ID token is not valid")
        raise SignInRefused(text) from None
    except JoseError as error:
        raise SignInRefused(f"The ID token is not valid ({error.error})") from None


def find_error_code(reply: Reply) -> str:
    """Return the error that a reply of the token endpoint names; other text of it is not shown."""
    try:
        code = json.loads(reply.text).get("error")
    except (ValueError, AttributeError):
        code = None
    return code if isinstance(code, str) and ERROR_CODE.fullmatch(code) else f"status {reply.status}"
