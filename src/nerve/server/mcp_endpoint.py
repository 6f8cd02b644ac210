"""The route `/mcp`: the MCP server of the project over HTTP, with the tokens of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from nerve.api import ApiError
from nerve.client import Client

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MCP_PATH = "/mcp"
INSTALL_FIX = "Install it where the server runs: pip install '.[mcp]' in the clone of Nerve."


class McpEndpoint:
    """An ASGI application without sessions: `find_client` returns the API for the sender of a request.

    The library is imported with the first request, in a thread: it takes half a second.
    """

    def __init__(
        self,
        find_client: Callable[[Request], Client],
        closing: asyncio.Event,
        *,
        allow_answers: bool = False,
        workflow_tools: bool = False,
    ) -> None:
        self._find_client, self._closing = find_client, closing
        self._allow_answers, self._workflow_tools = allow_answers, workflow_tools
        self._starting: asyncio.Task[ASGIApp] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        app = await asyncio.shield(self._starting)
        await app(scope, receive, send)

    async def _start(self) -> ASGIApp:
        try:
            await asyncio.to_thread(import_module, "nerve.mcp.server")
        except ModuleNotFoundError as error:
            self._starting = None
            raise ApiError("unsupported", f"The MCP library is missing ({error.name})", INSTALL_FIX) from None
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from nerve.mcp.server import ProjectMcpServer

        server = ProjectMcpServer(
            self._find_client_of_call,
            allow_answers=self._allow_answers,
            workflow_tools=self._workflow_tools,
        ).create_server()
        manager = StreamableHTTPSessionManager(server, stateless=True)
        ready = asyncio.Event()

        async def serve() -> None:
            async with manager.run():
                ready.set()
                await self._closing.wait()

        self._serving = asyncio.create_task(serve())
        await ready.wait()
        return manager.asgi_app

    def _find_client_of_call(self, context: Any) -> Client:
        request = context.request
        assert isinstance(request, Request)
        return self._find_client(request)
