"""Authentication by host, origin and token."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from nerve.api.callers import Caller, Scope, current_user_name
from nerve.api.errors import ApiError

MAX_FAILURES_PER_SECOND = 10
"""Wrong tokens per second that get a normal response."""
LAUNCH_CODE_TTL_S = 300
COOKIE_TTL_S = 7 * 24 * 3600
TOKEN_SUBPROTOCOL_PREFIX = "nerve.token."
"""Prefix of a token in the subprotocols, the only WebSocket header that a browser page can set."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Auth:
    """The tokens and host names of one server, and the launch codes and cookies of its browsers."""

    def __init__(self, tokens: Mapping[Scope, str], hosts: Iterable[str] = ()) -> None:
        if not all(tokens.values()):
            raise ValueError("A token must not be empty")
        self._tokens = dict(tokens)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._failures: deque[float] = deque(maxlen=MAX_FAILURES_PER_SECOND)
        self._codes: dict[str, tuple[Scope, float]] = {}

    # -- host and origin -----------------------------------------------------------------------

    def check_origin(self, scope: Mapping[str, Any]) -> None:
        """Raise ApiError for a host that is not allowed, or a page of another origin."""
        hosts = header_values(scope, b"host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        server = scope.get("server")
        port = server[1] if server else None
        if port is None:  # a Unix socket, which no browser can reach
            local_names = {"localhost"}
        else:
            bare = LOOPBACK_NAMES if port == 80 else ()
            local_names = {*bare, *(f"{name}:{port}" for name in LOOPBACK_NAMES)}
        if host not in self._hosts | local_names:
            raise ApiError(
                "misdirected", f"Host '{host}' is not allowed", "Use the address the server printed."
            )
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        # A configured host may also be served over https by a proxy.
        allowed = ([], [f"{scheme}://{host}"], *([[f"https://{host}"]] if host in self._hosts else ()))
        site = header_values(scope, b"sec-fetch-site")
        if header_values(scope, b"origin") not in allowed or site not in ([], ["same-origin"], ["none"]):
            fix = "Use the page of this server, or send a token."
            raise ApiError("forbidden", "Requests from other origins are not allowed", fix)

    # -- the token -----------------------------------------------------------------------------

    def authenticate(self, scope: Mapping[str, Any]) -> Scope:
        """Return the scope of the token or cookie of a request, or raise ApiError."""
        headers = header_values(scope, b"authorization")
        if headers:
            scheme, _, token = headers[0].partition(" ")
            return self.scope_for_token(
                token.strip() if len(headers) == 1 and scheme.lower() == "bearer" else ""
            )
        if (cookie := read_session_cookie(scope)) is not None:
            return self._scope_of_cookie(scope, cookie)
        raise self._record_failure()

    def authenticate_websocket(self, scope: Mapping[str, Any]) -> Scope | None:
        """Return the scope of the token of a WebSocket; None if the token comes in the first message."""
        token_protocols = [
            subprotocol
            for subprotocol in scope["subprotocols"]
            if subprotocol.startswith(TOKEN_SUBPROTOCOL_PREFIX)
        ]
        if token_protocols:
            return self.scope_for_token(token_protocols[0].removeprefix(TOKEN_SUBPROTOCOL_PREFIX))
        if header_values(scope, b"authorization") or read_session_cookie(scope) is not None:
            return self.authenticate(scope)
        return None

    def scope_for_token(self, token: str) -> Scope:
        """Return the scope of a token. Compares all tokens, each in constant time."""
        matches = [scope for scope, expected in self._tokens.items() if constant_time_equal(expected, token)]
        if not matches:
            raise self._record_failure()
        return matches[0]

    def _record_failure(self) -> ApiError:
        """Return the error for a wrong token. Only wrong tokens are rate limited."""
        now = time.monotonic()
        if len(self._failures) == MAX_FAILURES_PER_SECOND and now - self._failures[0] < 1:
            return ApiError("too_many", "Too many wrong tokens", "Try again in a second.")
        self._failures.append(now)
        return ApiError("unauthorized", "A valid token is required", "Send: Authorization: Bearer TOKEN")

    # -- browsers ------------------------------------------------------------------------------

    def create_launch_code(self, scope: Scope = "admin") -> str:
        """Return a code that signs in one browser, once, within five minutes."""
        now = time.monotonic()
        self._codes = {code: entry for code, entry in self._codes.items() if entry[1] > now}
        code = secrets.token_urlsafe(32)
        self._codes[code] = scope, now + LAUNCH_CODE_TTL_S
        return code

    def sign_in(self, scope: Mapping[str, Any], code: str) -> str:
        """Return the Set-Cookie header for a launch code, and invalidate the code."""
        match = next((candidate for candidate in self._codes if constant_time_equal(candidate, code)), None)
        level, until = self._codes.pop(match) if match is not None else ("read", 0.0)
        if until < time.monotonic():
            raise self._record_failure()
        cookie = f"{level}.{int(time.time()) + COOKIE_TTL_S}.{secrets.token_urlsafe(16)}"
        secure = "; Secure" if scope["scheme"] == "https" else ""
        return (
            f"{session_cookie_name(scope)}={cookie}.{self._sign_cookie(level, cookie)}; Path=/; "
            f"Max-Age={COOKIE_TTL_S}; "
            f"HttpOnly; SameSite=Strict{secure}"
        )

    def _sign_cookie(self, scope: Scope, text: str) -> str:
        """Return a signature keyed by the token, so that a new token invalidates all old cookies."""
        return hmac.digest(self._tokens[scope].encode(), f"cookie:{text}".encode(), "sha256").hex()

    def _scope_of_cookie(self, scope: Mapping[str, Any], cookie: str) -> Scope:
        text, _, seal = cookie.rpartition(".")
        level, until, *_ = [*text.split("."), ""]
        for known in self._tokens:
            if (
                known == level
                and constant_time_equal(self._sign_cookie(known, text), seal)
                and int(until) > time.time()
            ):
                check_csrf(scope)
                return known
        raise self._record_failure()


def check_csrf(scope: Mapping[str, Any]) -> None:
    """Raise ApiError for a state-changing cookie request that a page of another origin may have made.

    The API requires a header that forms cannot send, and forms of the web page an Origin.
    """
    if scope["type"] == "websocket":
        if not header_values(scope, b"origin"):
            raise ApiError(
                "forbidden", "A WebSocket with a cookie requires an Origin header", "Send a token."
            )
    elif scope["method"] in ("GET", "HEAD") or header_values(scope, b"x-nerve") == ["1"]:
        return
    elif scope["path"].startswith("/api/"):
        raise ApiError("forbidden", "Missing header X-Nerve", "Send: X-Nerve: 1")
    elif not header_values(scope, b"origin"):  # `check_origin` has compared it with this server
        raise ApiError("forbidden", "A form requires an Origin header", "Use a current browser.")


def header_values(scope: Mapping[str, Any], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def session_cookie_name(scope: Mapping[str, Any]) -> str:
    """Return a cookie name with the port, because browsers share cookies between ports of a host."""
    server = scope.get("server")
    return f"nerve_{server[1] if server else None}"


def read_session_cookie(scope: Mapping[str, Any]) -> str | None:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load("; ".join(header_values(scope, b"cookie")))
    except CookieError:
        return None
    morsel = jar.get(session_cookie_name(scope))
    return morsel.value if morsel is not None else None


def constant_time_equal(expected: str, candidate: str) -> bool:
    return hmac.compare_digest(expected.encode(), candidate.encode("utf-8", "replace"))


# -- callers -------------------------------------------------------------------------------------------


CLIENT_HEADER = b"x-nerve-client"
SCREEN_NAMES = ("cli", "commander")
"""Client names that a Unix socket client of the same user may use."""


def caller_of_request(scope: Mapping[str, Any], level: Scope | None = None) -> Caller:
    """Return the caller of a request or WebSocket."""
    token_scope: Scope = level or scope["nerve.caller"]
    server = scope.get("server")
    if not server or server[1] is None:
        names = header_values(scope, CLIENT_HEADER)
        via = names[0] if len(names) == 1 and names[0] in SCREEN_NAMES else "unix socket"
        return Caller(f"unix:{current_user_name()}", via, token_scope, scope["state"]["pid"])
    via = "ws" if scope["type"] == "websocket" else "http"
    return Caller(f"{'browser' if uses_cookie(scope) else 'token'}:{token_scope}", via, token_scope)


def uses_cookie(scope: Mapping[str, Any]) -> bool:
    token = header_values(scope, b"authorization") or any(
        subprotocol.startswith(TOKEN_SUBPROTOCOL_PREFIX) for subprotocol in scope.get("subprotocols", ())
    )
    return not token and read_session_cookie(scope) is not None
