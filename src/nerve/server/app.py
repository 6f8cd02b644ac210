"""The ASGI application. It authenticates every request before routing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from nerve.api import Api, ApiError
from nerve.server.auth import Auth
from nerve.server.routes import OPEN_PATHS, build_legacy_routes, build_routes
from nerve.server.sse import HEARTBEAT_S, SseEndpoints
from nerve.server.websocket import WebSocketEndpoint

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
WEBSOCKET_PATH = "/ws"
ROUTES_FIX = "See the routes: GET /api/openapi.json"
STOPPING_ERROR = ApiError(
    "busy", "The server is shutting down. Runs resume when it restarts", "Retry when the server is back."
)
CODE_BY_HTTP_STATUS = {404: "not_found", 405: "not_allowed"}


def make_app(api: Api, auth: Auth, heartbeat: float = HEARTBEAT_S) -> ServerApp:
    """Return the API as an ASGI application. `heartbeat` is in seconds."""
    return ServerApp(api, auth, heartbeat)


class ServerApp:
    """Checks host, origin and token of every request before it is routed and its body is read."""

    def __init__(self, api: Api, auth: Auth, heartbeat: float) -> None:
        self.auth = auth
        self.max_connections = api.session.config.max_connections
        self.closing = asyncio.Event()
        """Set when the server stops, so that streams end and do not block the shutdown."""
        streams = SseEndpoints(api, self.closing, heartbeat)
        routes = [*build_routes(api, auth, streams), *build_legacy_routes(api)]
        self._router = build_router(routes, WebSocketEndpoint(api, auth))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        # Names in the path may contain any character, such as "/", so segments are unquoted after routing.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        try:
            self.auth.check_origin(scope)
            scope["nerve.caller"] = self._identify_caller(scope)
        except ApiError as error:
            await send_denial(error, scope, receive, send)
            return
        try:
            await self._router(scope, receive, with_security_headers(scope, send))
        except asyncio.CancelledError:
            # The shutdown grace period is over; send an error instead of dropping the connection.
            if not self.closing.is_set() or scope["type"] != "http" or "nerve.answered" in scope:
                raise
            await error_response(STOPPING_ERROR)(scope, receive, send)

    def _identify_caller(self, scope: Scope) -> str | None:
        """Return the scope of the caller; None for open paths and WebSockets that send their token later."""
        if scope["type"] == "websocket" and scope["path"] == WEBSOCKET_PATH:
            return self.auth.authenticate_websocket(scope)
        if scope["type"] == "http" and scope["path"] in OPEN_PATHS:
            return None
        return self.auth.authenticate(scope)


def build_router(routes: list[Route], sockets: WebSocketEndpoint) -> ASGIApp:
    inner = Starlette(
        routes=[*routes, WebSocketRoute(WEBSOCKET_PATH, sockets.handle)],
        exception_handlers={
            ApiError: handle_api_error,
            HTTPException: handle_http_error,
            Exception: handle_internal_error,
        },
    )
    inner.router.redirect_slashes = False
    return inner


async def send_denial(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(error_response(error))
    else:
        await error_response(error)(scope, receive, send)


async def handle_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODE_BY_HTTP_STATUS.get(error.status_code, "bad_request")
    allowed = (error.headers or {}).get("Allow")
    fix = f"Use: {allowed}" if allowed else ROUTES_FIX
    return error_response(ApiError(code, f"{request.method} {request.url.path}: {error.detail.lower()}", fix))


async def handle_internal_error(request: Request, error: Exception) -> Response:
    return error_response(ApiError("internal", f"Internal server error ({type(error).__name__})"))


def error_response(error: ApiError) -> Response:
    """Return an error as a JSON response."""
    headers = SECURITY_HEADERS | ({"www-authenticate": "Bearer"} if error.code == "unauthorized" else {})
    body = json.dumps(error.to_dict())
    return Response(body, error.status, headers, media_type="application/json")


def with_security_headers(scope: Scope, send: Send) -> Send:
    added = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            scope["nerve.answered"] = True
            present = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in present)]
        await send(message)

    return send_with_headers
