"""Authentication by host, origin and token."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple, cast

from nerve.api.callers import Caller, Grant, Scope, current_user_name
from nerve.api.errors import ApiError
from nerve.core.people import PERSON_IDENTITY, TOKEN_PREFIX, Person, hash_token

MAX_FAILURES_PER_SECOND = 10
"""Wrong tokens per second that get a normal response."""
LAUNCH_CODE_TTL_S = 300
COOKIE_TTL_S = 7 * 24 * 3600
TOKEN_SUBPROTOCOL_PREFIX = "nerve.token."
"""Prefix of a token in the subprotocols, the only WebSocket header that a browser page can set."""
CROSS_SITE_PATHS = frozenset({"/sign-in/oidc/callback"})
"""Pages that another site may open: the state in their query proves that this browser has asked for it."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


ReadPeople = Callable[[], Awaitable[Mapping[str, Person]]]


class Holder(NamedTuple):
    """What a token or a cookie permits, and the person whose it is, if it is not one of the project."""

    scope: Grant
    person: str | None = None
    way: str | None = None
    """How the person has signed in, if not with a token."""


class Auth:
    """The tokens and host names of one server, and the launch codes and cookies of its browsers.

    Before a request is authenticated, `refresh_people` reads the people if it may come from one of them.
    """

    def __init__(self, tokens: Mapping[Scope, str], hosts: Iterable[str] = ()) -> None:
        if not all(tokens.values()):
            raise ValueError("A token must not be empty")
        self._tokens = dict(tokens)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._failures: deque[float] = deque(maxlen=MAX_FAILURES_PER_SECOND)
        self._codes: dict[str, tuple[Scope, float]] = {}
        self._read_people: ReadPeople | None = None
        self._people: Mapping[str, Person] = {}

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
        is_reply = scope["path"] in CROSS_SITE_PATHS and scope.get("method") == "GET"
        is_same_site = site in ([], ["same-origin"], ["none"]) or is_reply
        if header_values(scope, b"origin") not in allowed or not is_same_site:
            fix = "Use the page of this server, or send a token."
            raise ApiError("forbidden", "Requests from other origins are not allowed", fix)

    # -- the token -----------------------------------------------------------------------------

    def read_people_with(self, read: ReadPeople) -> None:
        """Accept the tokens of the people that a function returns."""
        self._read_people = read

    async def refresh_people(self, scope: Mapping[str, Any]) -> None:
        """Read the people if the request may come from one of them."""
        token = find_token(scope)
        cookie = read_session_cookie(scope) if token is None else None
        if (token or "").startswith(TOKEN_PREFIX) or (cookie or "").startswith(PERSON_IDENTITY):
            await self._refresh_people()

    async def read_people(self) -> Mapping[str, Person]:
        """Return the people as they are now."""
        await self._refresh_people()
        return self._people

    async def _refresh_people(self) -> None:
        if self._read_people is not None:
            self._people = await self._read_people()

    def authenticate(self, scope: Mapping[str, Any]) -> Holder:
        """Return what the token or cookie of a request permits, or raise ApiError."""
        headers = header_values(scope, b"authorization")
        if headers:
            scheme, _, token = headers[0].partition(" ")
            return self.find_holder(token.strip() if len(headers) == 1 and scheme.lower() == "bearer" else "")
        if (cookie := read_session_cookie(scope)) is not None:
            return self._holder_of_cookie(scope, cookie)
        raise self._record_failure()

    def authenticate_websocket(self, scope: Mapping[str, Any]) -> Holder | None:
        """Return what the token of a WebSocket permits; None if the token comes in the first message."""
        if (token := find_protocol_token(scope)) is not None:
            return self.find_holder(token)
        if header_values(scope, b"authorization") or read_session_cookie(scope) is not None:
            return self.authenticate(scope)
        return None

    async def authenticate_token(self, token: str) -> Holder:
        """Return what a token permits that a client has sent in a message or a form."""
        if token.startswith(TOKEN_PREFIX):
            await self._refresh_people()
        return self.find_holder(token)

    def find_holder(self, token: str) -> Holder:
        """Return what a token permits. Compares all tokens, each in constant time."""
        matches = [scope for scope, expected in self._tokens.items() if constant_time_equal(expected, token)]
        if matches:
            return Holder(matches[0])
        hash = hash_token(token)
        for person in self._people.values():
            if person.token_hash is not None and constant_time_equal(person.token_hash, hash):
                if person.disabled:
                    break
                return holder_of(person)
        raise self._record_failure()

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
        return self.make_cookie(scope, Holder(level))

    def make_cookie(self, scope: Mapping[str, Any], holder: Holder) -> str:
        """Return the Set-Cookie header that signs a browser in."""
        level: str = holder.scope
        if holder.person is not None:
            level = f"{PERSON_IDENTITY}{holder.person}" + (f"/{holder.way}" if holder.way else "")
        cookie = f"{level}.{int(time.time()) + COOKIE_TTL_S}.{secrets.token_urlsafe(16)}"
        return format_cookie(scope, f"{cookie}.{self._sign_cookie(level, cookie)}", COOKIE_TTL_S)

    def _sign_cookie(self, level: str, text: str) -> str:
        """Return a signature that is not valid with another token.

        It is keyed by a token of the project, and a person's has the number of the change of their token.
        """
        person = self._person_of_cookie(level)
        scope = cast("Scope", level) if person is None else "admin"
        bound = "" if person is None else f"{person.generation}:{person.token_hash}:"
        return hmac.digest(self._tokens[scope].encode(), f"cookie:{bound}{text}".encode(), "sha256").hex()

    def sign(self, text: str) -> str:
        """Return a signature of a text that only the servers of this project can make."""
        return hmac.digest(self._tokens["admin"].encode(), text.encode(), "sha256").hex()

    def _person_of_cookie(self, level: str) -> Person | None:
        kind, _, name = level.partition(PERSON_IDENTITY)
        return self._people.get(name.partition("/")[0]) if not kind else None

    def _holder_of_cookie(self, scope: Mapping[str, Any], cookie: str) -> Holder:
        text, _, seal = cookie.rpartition(".")
        level, until, *_ = [*text.split("."), ""]
        person = self._person_of_cookie(level)
        is_known = level in self._tokens or (person is not None and not person.disabled)
        is_signed = is_known and constant_time_equal(self._sign_cookie(level, text), seal)
        if is_signed and int(until) > time.time():
            check_csrf(scope)
            way = level.partition("/")[2] or None
            return Holder(cast("Scope", level)) if person is None else holder_of(person)._replace(way=way)
        raise self._record_failure()


def holder_of(person: Person) -> Holder:
    return Holder(cast("Grant", person.scope), person.name)


def format_cookie(scope: Mapping[str, Any], value: str, max_age: int) -> str:
    """Return the Set-Cookie header of a session; one without a value signs the browser out."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return (
        f"{session_cookie_name(scope)}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"
    )


def find_token(scope: Mapping[str, Any]) -> str | None:
    """Return the token that a request names in its header or as a subprotocol."""
    headers = header_values(scope, b"authorization")
    return headers[0].partition(" ")[2].strip() if headers else find_protocol_token(scope)


def find_protocol_token(scope: Mapping[str, Any]) -> str | None:
    return next(
        (
            subprotocol.removeprefix(TOKEN_SUBPROTOCOL_PREFIX)
            for subprotocol in scope.get("subprotocols", ())
            if subprotocol.startswith(TOKEN_SUBPROTOCOL_PREFIX)
        ),
        None,
    )


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
    else:
        check_form_origin(scope)


def check_form_origin(scope: Mapping[str, Any]) -> None:
    """Raise ApiError for a form without an origin; `check_origin` has compared it with this server."""
    if not header_values(scope, b"origin"):
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
SCREEN_NAMES = ("cli", "commander", "mcp", "acp")
"""Client names that a Unix socket client of the same user may use."""


def caller_of_request(scope: Mapping[str, Any], holder: Holder | None = None) -> Caller:
    """Return the caller of a request or WebSocket."""
    grant, person, way = holder or scope["nerve.caller"]
    identity = None if person is None else f"{PERSON_IDENTITY}{person}"
    server = scope.get("server")
    if not server or server[1] is None:
        names = header_values(scope, CLIENT_HEADER)
        via = names[0] if len(names) == 1 and names[0] in SCREEN_NAMES else "unix socket"
        return Caller(identity or f"unix:{current_user_name()}", via, grant, scope["state"]["pid"])
    via = "ws" if scope["type"] == "websocket" else "http"
    is_browser = uses_cookie(scope)
    client = scope.get("client")
    return Caller(
        identity or f"{'browser' if is_browser else 'token'}:{grant}",
        way or "page" if person is not None and is_browser else via,
        grant,
        address=client[0] if client else None,
    )


def uses_cookie(scope: Mapping[str, Any]) -> bool:
    return find_token(scope) is None and read_session_cookie(scope) is not None
