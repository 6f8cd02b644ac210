"""A provider of OpenID Connect on loopback, which signs real JWTs: a stand-in for the one of a company."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "nerve-test", "not a real secret: 1/2"


class StandInProvider:
    """Signs in whoever asks as `email`; the attributes change what it says."""

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {"email": "ann@example.com", "email_verified": True}
        self.change_token: Callable[[dict[str, Any]], None] = lambda claims: None
        self.encode_token: Callable[[dict[str, Any]], str] = self.sign
        self.auth_methods = ["client_secret_basic"]
        self.codes: dict[str, dict[str, str]] = {}
        self.key_reads = self.token_requests = 0
        self.is_confirmed = False
        """Whether a page asks before it signs in, as a real provider does."""
        self.rotate_key()

    def rotate_key(self) -> None:
        """Sign with a new key, and publish only that."""
        self.key = RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[StandInProvider]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.issuer = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)
        }
        body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
        status, extra, text = self.answer(method, target, headers, body)
        reply = (
            f"HTTP/1.1 {status} x\r\ncontent-length: {len(text)}\r\nconnection: close\r\n{extra}\r\n{text}"
        )
        writer.write(reply.encode())
        await writer.drain()
        writer.close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: str) -> tuple[int, str, str]:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match method, parts.path:
            case "GET", "/.well-known/openid-configuration":
                return self._json(200, self._metadata())
            case "GET", "/keys":
                self.key_reads += 1
                return self._json(200, {"keys": [self.key.as_dict(private=False)]})
            case "GET", "/authorize":
                return self._authorize(query, target)
            case "POST", "/token":
                self.token_requests += 1
                form = {name: values[0] for name, values in parse_qs(body).items()}
                return self._give_token(form, headers)
        return self._json(404, {})

    def _json(self, status: int, data: Any) -> tuple[int, str, str]:
        return status, "content-type: application/json\r\n", json.dumps(data)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "token_endpoint_auth_methods_supported": self.auth_methods,
        }

    def _authorize(self, query: dict[str, str], target: str) -> tuple[int, str, str]:
        if self.is_confirmed and "confirmed" not in query:
            link = f"{target}&confirmed=1".replace("&", "&amp;")
            return 200, "content-type: text/html\r\n", f'<a id="confirm" href="{link}">Continue as ann</a>'
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        reply = urlencode({"code": code, "state": query["state"], "iss": self.issuer})
        return 302, f"location: {query['redirect_uri']}?{reply}\r\n", ""

    def _give_token(self, form: dict[str, str], headers: dict[str, str]) -> tuple[int, str, str]:
        if not self._is_client(form, headers):
            return self._json(401, {"error": "invalid_client"})
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != challenge:
            return self._json(400, {"error": "invalid_grant"})
        if asked["redirect_uri"] != form["redirect_uri"]:
            return self._json(400, {"error": "invalid_grant"})
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": "1", "aud": CLIENT_ID, "iat": now, "exp": now + 60}
        claims |= {"nonce": asked["nonce"], **self.claims}
        self.change_token(claims)
        token = self.encode_token(claims)
        return self._json(200, {"access_token": "x", "token_type": "Bearer", "id_token": token})

    def sign(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def _is_client(self, form: dict[str, str], headers: dict[str, str]) -> bool:
        if "client_secret_basic" in self.auth_methods:
            pair = base64.b64decode(headers.get("authorization", "").removeprefix("Basic ")).decode()
            return tuple(map(unquote_plus, pair.split(":"))) == (CLIENT_ID, CLIENT_SECRET)
        return form.get("client_secret") == CLIENT_SECRET
