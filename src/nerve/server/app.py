"""The application: who may come in is decided here, before anything is routed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from nerve.api import Api, ApiError
from nerve.server.auth import Auth
from nerve.server.lines import Lines
from nerve.server.protocol import STOPPING
from nerve.server.routes import ways
from nerve.server.seed_routes import seed_ways
from nerve.server.stream import HEARTBEAT, Streams
from nerve.server.talking import Sockets
from nerve.server.way import Way

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
SOCKET = "/ws"
ROUTES = "See the routes: GET /api/openapi.json"
HTTP_CODES = {404: "not_found", 405: "not_allowed"}


def app(api: Api, auth: Auth, heartbeat: float = HEARTBEAT) -> App:
    """The api over HTTP, as an ASGI application. `heartbeat` is in seconds."""
    return App(api, auth, heartbeat)


class App:
    """Looks at the place and the token of all that comes; only then is it routed, and its body read."""

    def __init__(self, api: Api, auth: Auth, heartbeat: float) -> None:
        self.auth = auth
        self.closing = asyncio.Event()
        """Set when the server stops: streams end, so that it can."""
        streams = Streams(api, self.closing, heartbeat)
        self.ways: list[Way] = [*ways(api, auth, streams), *seed_ways(api)]
        self.open = {way.path for way in self.ways if way.access == "open"}
        self.lines = Lines(api, auth)
        self._routed = routed(self.ways, Sockets(api, auth))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._routed(scope, receive, send)
            return
        # A name in the path may have any character; what was quoted stays quoted until it is a name.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        try:
            self.auth.check_place(scope)
            scope["nerve.caller"] = self._caller(scope)
        except ApiError as error:
            await deny(error, scope, receive, send)
            return
        try:
            await self._routed(scope, receive, with_headers(scope, send))
        except asyncio.CancelledError:
            # The server stops and has waited for us as long as it can.
            if not self.closing.is_set() or scope["type"] != "http" or "nerve.answered" in scope:
                raise
            await refusal(STOPPING)(scope, receive, send)

    def _caller(self, scope: Scope) -> str | None:
        """Who asks; None where that need not be known, or not yet."""
        if scope["type"] == "websocket" and scope["path"] == SOCKET:
            return self.auth.socket_caller(scope)
        if scope["type"] == "http" and scope["path"] in self.open:
            return None
        return self.auth.caller(scope)


def routed(ways: list[Way], sockets: Sockets) -> ASGIApp:
    inner = Starlette(
        routes=[*(way.route() for way in ways), WebSocketRoute(SOCKET, sockets.talk)],
        exception_handlers={ApiError: tell, HTTPException: tell_http, Exception: tell_bug},
    )
    inner.router.redirect_slashes = False
    return inner


async def deny(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(refusal(error))
    else:
        await refusal(error)(scope, receive, send)


async def tell(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return refusal(error)


async def tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "bad_request")
    allowed = (error.headers or {}).get("Allow")
    fix = f"Use: {allowed}" if allowed else ROUTES
    return refusal(ApiError(code, f"{request.method} {request.url.path}: {error.detail.lower()}", fix))


async def tell_bug(request: Request, error: Exception) -> Response:
    return refusal(ApiError("internal", f"something went wrong inside ({type(error).__name__})"))


def refusal(error: ApiError) -> Response:
    """An error as JSON."""
    headers = HEADERS | ({"www-authenticate": "Bearer"} if error.code == "unauthorized" else {})
    body = json.dumps(error.to_dict())
    return Response(body, error.status, headers, media_type="application/json")


def with_headers(scope: Scope, send: Send) -> Send:
    added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            scope["nerve.answered"] = True
            present = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in present)]
        await send(message)

    return sent
