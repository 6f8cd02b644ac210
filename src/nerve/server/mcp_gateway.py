"""MCP over HTTP in a process of its own: each call is executed by a server, with the token of its sender."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.routing import Route

from nerve.api import ApiError
from nerve.api.errors import to_api_error
from nerve.client import Client, ServerAddress
from nerve.server.app import build_router, error_response, with_security_headers
from nerve.server.auth import Auth, find_token
from nerve.server.bind import bind_tcp
from nerve.server.mcp_endpoint import MCP_PATH, McpEndpoint
from nerve.server.serve import stop_on_signals
from nerve.server.uvicorn_server import run_server

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

MAX_CONNECTIONS = 256
TOKEN_MISSING = ApiError("unauthorized", "A valid token is required", "Send: Authorization: Bearer TOKEN")

FindUrl = Callable[[], Awaitable[str]]
"""Returns the URL of the server that executes the calls, such as after it was started."""


class McpGateway:
    """Serves `/mcp`. A request needs a token of the server, which decides what its sender may do."""

    def __init__(self, find_url: FindUrl, *, allow_answers: bool, workflow_tools: bool) -> None:
        self.max_connections = MAX_CONNECTIONS
        self.closing = asyncio.Event()
        self._find_url, self._url = find_url, ""
        self._origins = Auth({})
        self._clients: dict[str, Client] = {}
        """The clients of the tokens that the server has accepted."""
        endpoint = McpEndpoint(
            lambda request: self._clients[find_token(request.scope) or ""],
            self.closing,
            allow_answers=allow_answers,
            workflow_tools=workflow_tools,
        )
        self._router = build_router([Route(MCP_PATH, endpoint, methods=["POST"])], respond_with_error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._origins.check_origin(scope)
            await self._authenticate(find_token(scope))
        except Exception as error:
            await error_response(to_api_error(error))(scope, receive, send)
            return
        await self._router(scope, receive, with_security_headers(scope, send))

    async def _authenticate(self, token: str | None) -> None:
        """Raise ApiError unless the server accepts a token; it is asked each time, because tokens end."""
        if not token:
            raise TOKEN_MISSING
        self._url = await self._find_url()
        known = self._clients.get(token)
        client = known or Client(lambda: ServerAddress(self._url, token), via="mcp")
        try:
            await client.health()
        except BaseException:
            if known is None:
                await client.close()
            raise
        if self._clients.setdefault(token, client) is not client:
            await client.close()

    async def close(self) -> None:
        """Close the connections to the server."""
        for client in self._clients.values():
            await client.close()


async def serve_mcp_gateway(
    host: str,
    port: int,
    find_url: FindUrl,
    ready: Callable[[str], None],
    *,
    allow_answers: bool = False,
    workflow_tools: bool = False,
) -> None:
    """Serve MCP at an address until SIGTERM or Ctrl-C; call `ready` with the URL when it listens."""
    gateway = McpGateway(find_url, allow_answers=allow_answers, workflow_tools=workflow_tools)
    with stop_on_signals() as stop, bind_tcp(host, port) as bound:
        name = f"[{host}]" if ":" in host else host
        try:
            async with run_server(gateway, [bound]):
                ready(f"http://{name}:{bound.getsockname()[1]}{MCP_PATH}")
                await stop.wait()
        finally:
            await gateway.close()


def respond_with_error(request: Request, error: ApiError) -> Response:
    return error_response(error)
