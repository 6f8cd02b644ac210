"""Who may ask for what: decided from where a request comes from and the token it carries."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from nerve.api.errors import ApiError
from nerve.api.operations import Scope

MAY: dict[Scope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "answer": frozenset({"read", "answer"}),
    "run": frozenset({"read", "run"}),
    "admin": frozenset({"read", "answer", "run", "admin"}),
}
"""What the token of each scope may do. Who may start something need not be who approves it."""

FAILURES = 10
"""Wrong tokens that are answered in a second."""
CODE_SECONDS = 300
COOKIE_SECONDS = 7 * 24 * 3600
OFFERED = "nerve.token."
"""What a page puts before its token in the subprotocols, the one header it can choose."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Auth:
    """The tokens of one server, the names it goes by, and the codes and cookies of its browsers."""

    def __init__(self, tokens: Mapping[Scope, str], hosts: Iterable[str] = ()) -> None:
        if not all(tokens.values()):
            raise ValueError("a token must not be empty")
        self._tokens = dict(tokens)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self._codes: dict[str, tuple[Scope, float]] = {}

    # -- the place -----------------------------------------------------------------------------

    def check_place(self, scope: Mapping[str, Any]) -> None:
        """Refuse names that are not ours, and pages that are not ours."""
        hosts = values(scope, b"host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if host not in self._own(scope):
            raise ApiError(
                "misdirected", "this server does not go by that name", "Use the address it printed."
            )
        origins = values(scope, b"origin")
        if origins and (len(origins) > 1 or origins[0] not in self._origins(scope, host)):
            raise foreign()
        if values(scope, b"sec-fetch-site") not in ([], ["same-origin"], ["none"]):
            raise foreign()

    def _own(self, scope: Mapping[str, Any]) -> frozenset[str]:
        server = scope.get("server")
        port = server[1] if server else None
        if port is None:  # a Unix socket, which no browser can reach
            return self._hosts | {"localhost"}
        bare = LOOPBACK if port == 80 else ()
        return self._hosts | {*bare, *(f"{name}:{port}" for name in LOOPBACK)}

    def _origins(self, scope: Mapping[str, Any], host: str) -> tuple[str, ...]:
        """Behind a proxy a configured name is reached by https."""
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        return (f"{scheme}://{host}", *([f"https://{host}"] if host in self._hosts else ()))

    # -- the token -----------------------------------------------------------------------------

    def caller(self, scope: Mapping[str, Any]) -> Scope:
        """Whose token the request carries; ApiError if it is nobody's."""
        given = values(scope, b"authorization")
        if given:
            scheme, _, token = given[0].partition(" ")
            return self.known(token.strip() if len(given) == 1 and scheme.lower() == "bearer" else "")
        if (cookie := cookie_of(scope)) is not None:
            return self._signed_in(scope, cookie)
        raise self._failed()

    def socket_caller(self, scope: Mapping[str, Any]) -> Scope | None:
        """Whose token a WebSocket carries; None if it has yet to say, in its first message."""
        offered = [each for each in scope["subprotocols"] if each.startswith(OFFERED)]
        if offered:
            return self.known(offered[0].removeprefix(OFFERED))
        if values(scope, b"authorization") or cookie_of(scope) is not None:
            return self.caller(scope)
        return None

    def known(self, token: str) -> Scope:
        """The scope of a token. All are compared, each in constant time."""
        same = [scope for scope, own in self._tokens.items() if same_text(own, token)]
        if not same:
            raise self._failed()
        return same[0]

    def _failed(self) -> ApiError:
        """A valid token is never held up by those who guess."""
        now = time.monotonic()
        if len(self._failures) == FAILURES and now - self._failures[0] < 1:
            return ApiError("too_many", "too many wrong tokens", "Try again in a second.")
        self._failures.append(now)
        return ApiError("unauthorized", "a token is needed", "Send it as: Authorization: Bearer TOKEN")

    # -- browsers ------------------------------------------------------------------------------

    def launch_code(self, scope: Scope = "admin") -> str:
        """A code that signs in one browser, once, within five minutes."""
        now = time.monotonic()
        self._codes = {code: kept for code, kept in self._codes.items() if kept[1] > now}
        code = secrets.token_urlsafe(32)
        self._codes[code] = scope, now + CODE_SECONDS
        return code

    def sign_in(self, scope: Mapping[str, Any], code: str) -> str:
        """The Set-Cookie header for a launch code, which is spent."""
        known = next((each for each in self._codes if same_text(each, code)), None)
        level, until = self._codes.pop(known) if known is not None else ("read", 0.0)
        if until < time.monotonic():
            raise self._failed()
        cookie = f"{level}.{int(time.time()) + COOKIE_SECONDS}.{secrets.token_urlsafe(16)}"
        secure = "; Secure" if scope["scheme"] == "https" else ""
        return (
            f"{cookie_name(scope)}={cookie}.{self._seal(level, cookie)}; Path=/; Max-Age={COOKIE_SECONDS}; "
            f"HttpOnly; SameSite=Strict{secure}"
        )

    def _seal(self, scope: Scope, text: str) -> str:
        """Made with the token itself: a new token ends all cookies of the old one."""
        return hmac.digest(self._tokens[scope].encode(), f"cookie:{text}".encode(), "sha256").hex()

    def _signed_in(self, scope: Mapping[str, Any], cookie: str) -> Scope:
        text, _, seal = cookie.rpartition(".")
        level, until, *_ = [*text.split("."), ""]
        for known in self._tokens:
            if known == level and same_text(self._seal(known, text), seal) and int(until) > time.time():
                check_meant(scope)
                return known
        raise self._failed()


def foreign() -> ApiError:
    fix = "Use the page of the server itself, or a program that sends the token."
    return ApiError("forbidden", "pages of other origins may not ask this server", fix)


def check_meant(scope: Mapping[str, Any]) -> None:
    """What changes something with a cookie must say what no form of another page can say."""
    if scope["type"] == "websocket":
        if not values(scope, b"origin"):
            raise ApiError("forbidden", "a cookie without an Origin opens no WebSocket", "Send the token.")
    elif scope["method"] not in ("GET", "HEAD") and values(scope, b"x-nerve") != ["1"]:
        raise ApiError("forbidden", "the header X-Nerve is missing", "Send: X-Nerve: 1")


def need(caller: Scope, scope: Scope) -> None:
    """Refuse a caller whose token is for something else."""
    if scope not in MAY[caller]:
        other = f" for '{scope}', or" if scope != "admin" else ""
        raise ApiError(
            "forbidden", f"a token for '{caller}' may not do this", f"Use a token{other} for 'admin'."
        )


def values(scope: Mapping[str, Any], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def cookie_name(scope: Mapping[str, Any]) -> str:
    """Servers on other ports of the same host keep their own cookies."""
    server = scope.get("server")
    return f"nerve_{server[1] if server else None}"


def cookie_of(scope: Mapping[str, Any]) -> str | None:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load("; ".join(values(scope, b"cookie")))
    except CookieError:
        return None
    found = jar.get(cookie_name(scope))
    return found.value if found is not None else None


def same_text(own: str, given: str) -> bool:
    return hmac.compare_digest(own.encode(), given.encode("utf-8", "replace"))
