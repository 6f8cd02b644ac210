"""The ASGI application. It authenticates every request before routing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.websockets import WebSocket

from nerve.api import Api, ApiError
from nerve.api.callers import Caller
from nerve.client import Client
from nerve.errors import StoreError
from nerve.server.auth import (
    Auth,
    Holder,
    caller_of_request,
    check_form_origin,
    format_cookie,
    read_session_cookie,
)
from nerve.server.chat_routes import CHAT_PREFIX, build_chat_routes
from nerve.server.mcp_endpoint import MCP_PATH, McpEndpoint
from nerve.server.request_body import read_body_bytes
from nerve.server.routes import OPEN_PATHS, build_legacy_routes, build_routes
from nerve.server.sse import HEARTBEAT_S, SseEndpoints
from nerve.server.webhook_routes import HOOKS_PREFIX, build_webhook_routes
from nerve.server.websocket import WebSocketEndpoint
from nerve.web.pages import add_all_pages
from nerve.web.site import CONTENT_SECURITY_POLICY, ServerPort, Site
from nerve.web.static_files import STATIC_PREFIX

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nerve.core.people import Person
    from nerve.session import Session

log = logging.getLogger("nerve")

RespondToError = Callable[[Request, ApiError], Response]
SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "same-origin",  # with no-referrer, a browser sends a form without its origin
    "x-content-type-options": "nosniff",
}
WEBSOCKET_PATH = "/ws"
ROUTES_FIX = "See the routes: GET /api/openapi.json"
STOPPING_ERROR = ApiError(
    "busy", "The server is shutting down. Runs resume when it restarts", "Retry when the server is back."
)
CODE_BY_HTTP_STATUS = {404: "not_found", 405: "not_allowed"}
PROGRAM_PATHS = (
    *("/api/", "/events", "/test/", "/healthz", "/metrics"),
    *(HOOKS_PREFIX, CHAT_PREFIX, MCP_PATH, WEBSOCKET_PATH),
)
"""Paths whose errors are JSON, whatever a client accepts."""


def make_app(api: Api, auth: Auth, heartbeat: float = HEARTBEAT_S, prefix: str = "") -> ServerApp:
    """Return the API and the web page as an ASGI application.

    `heartbeat` is in seconds. `prefix` is the path under which a proxy serves it, such as `/nerve`.
    """
    return ServerApp(api, auth, heartbeat, prefix)


class ServerApp:
    """Checks host, origin and token of every request before it is routed and its body is read."""

    def __init__(self, api: Api, auth: Auth, heartbeat: float, prefix: str = "") -> None:
        self.auth, self._prefix = auth, prefix
        auth.read_people_with(lambda: api.read(read_people))
        self.max_connections = api.session.config.max_connections
        self.closing = asyncio.Event()
        """Set when the server stops, so that streams end and do not block the shutdown."""
        streams = SseEndpoints(api, self.closing, heartbeat)

        def find_client(request: Request) -> Client:
            return Client(api.as_caller(caller_of_request(request.scope)))

        self.site = Site(
            ServerPort(
                find_caller,
                lambda caller: Client(api.as_caller(caller)),
                read_body_bytes,
                streams.respond,
                self._sign_in,
                lambda request: format_cookie(request.scope, "", 0),
                prefix,
            )
        )
        add_all_pages(self.site)
        config = api.session.config
        if config.sign_in is not None and config.sign_in.oidc is not None:
            from nerve.server.oidc_sign_in import make_oidc_sign_in  # few projects have a provider

            make_oidc_sign_in(config.sign_in.oidc, api.session.project, config.public_url, auth, self.site)
        routes: list[BaseRoute] = [
            *build_routes(api, auth, streams),
            *build_webhook_routes(api),
            *build_chat_routes(api),
            *build_legacy_routes(api),
            Route(MCP_PATH, McpEndpoint(find_client, self.closing), methods=["POST"]),
            WebSocketRoute(WEBSOCKET_PATH, WebSocketEndpoint(api, auth).handle),
            *self.site.routes,
        ]
        self._router = build_router(routes, self._respond_to_error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        # Names in the path may contain any character, such as "/", so segments are unquoted after routing.
        scope["path"] = self._remove_prefix(scope["raw_path"].decode("ascii", "replace"))
        try:
            self.auth.check_origin(scope)
            await self.auth.refresh_people(scope)
            scope["nerve.caller"] = self._identify_caller(scope)
        except ApiError as error:
            await self._send_denial(error, scope, receive, send)
            return
        try:
            await self._router(scope, receive, with_security_headers(scope, send))
        except asyncio.CancelledError:
            # The shutdown grace period is over; send an error instead of dropping the connection.
            if not self.closing.is_set() or scope["type"] != "http" or "nerve.answered" in scope:
                raise
            await error_response(STOPPING_ERROR)(scope, receive, send)

    def _identify_caller(self, scope: Scope) -> Holder | None:
        """Return what the caller may do; None for open paths and WebSockets that send their token later."""
        if scope["type"] == "websocket" and scope["path"] == WEBSOCKET_PATH:
            return self.auth.authenticate_websocket(scope)
        if scope["type"] == "http" and scope["path"] == "/" and read_session_cookie(scope) is not None:
            with contextlib.suppress(ApiError):
                return self.auth.authenticate(scope)
        if scope["type"] == "http" and (
            scope["path"] in OPEN_PATHS
            or scope["path"].startswith((STATIC_PREFIX, HOOKS_PREFIX, CHAT_PREFIX))
        ):
            return None
        return self.auth.authenticate(scope)

    async def _sign_in(self, request: Request, token: str) -> str:
        check_form_origin(request.scope)
        holder = await self.auth.authenticate_token(token)
        return self.auth.make_cookie(request.scope, holder)

    def _remove_prefix(self, path: str) -> str:
        """Return a path as it is routed; a proxy may or may not have removed the prefix."""
        rest = path.removeprefix(self._prefix) or "/"
        return rest if rest.startswith("/") else path

    async def _send_denial(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(error_response(error))
            return
        response = self._respond_to_error(Request(scope), error)
        await response(scope, receive, with_security_headers(scope, send))

    def _respond_to_error(self, request: Request, error: ApiError) -> Response:
        """Return an error as JSON for programs, or as HTML for browsers."""
        is_page = "text/html" in request.headers.get("accept", "") or "hx-request" in request.headers
        if is_page and not request.scope["path"].startswith(PROGRAM_PATHS):
            return self.site.error_response(request, error)
        return error_response(error)


async def read_people(session: Session) -> Mapping[str, Person]:
    people: Mapping[str, Person] = session.people.current()
    return people


def find_caller(request: Request) -> Caller | None:
    """Return the caller of a request; None for an open path without a sign-in."""
    return None if request.scope["nerve.caller"] is None else caller_of_request(request.scope)


def build_router(routes: list[BaseRoute], respond: RespondToError) -> ASGIApp:
    """Return the routes, with `respond` for their errors."""

    async def handle_api_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        if error.code == "internal" and isinstance(error.__cause__, StoreError):
            log.error("%s %s: %s", request.method, request.url.path, error.message)
        return respond(request, error)

    async def handle_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = CODE_BY_HTTP_STATUS.get(error.status_code, "bad_request")
        allowed = ", ".join(find_methods(routes, request)) if error.status_code == 405 else ""
        fix = f"Use: {allowed}" if allowed else ROUTES_FIX
        message = f"{request.method} {request.url.path}: {error.detail.lower()}"
        response = respond(request, ApiError(code, message, fix))
        if allowed:
            response.headers["allow"] = allowed
        return response

    async def handle_internal_error(request: Request, error: Exception) -> Response:
        return respond(request, ApiError("internal", f"Internal server error ({type(error).__name__})"))

    inner = Starlette(
        routes=routes,
        exception_handlers={
            ApiError: handle_api_error,
            HTTPException: handle_http_error,
            Exception: handle_internal_error,
        },
    )
    inner.router.redirect_slashes = False
    return inner


def find_methods(routes: Iterable[BaseRoute], request: Request) -> list[str]:
    """Return the methods with which the path of a request can be requested, of all routes that have it."""
    return sorted(
        {
            method
            for route in routes
            if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
    )


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
