"""Uvicorn with connection limits, on sockets that are already bound."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from nerve.server.app import ServerApp
from nerve.server.http_connection import ACCEPT_BATCH, LimitedHttpProtocol
from nerve.server.request_body import MAX_BODY_BYTES
from nerve.server.websocket_limits import LimitedWebSocketProtocol

SHUTDOWN_GRACE_S = 5
"""Seconds that requests may take to finish when the server stops."""
LISTEN_QUEUE = 256
"""Connections that the kernel holds until the server accepts them."""
KEEP_ALIVE_S = 20
"""Seconds an idle connection is kept. Longer than most clients keep theirs (5 to 15 seconds), so that the
server does not close a connection that a client is about to reuse."""


class GracefulServer(uvicorn.Server):
    """A uvicorn server that stops by an event and leaves signal handling to the caller."""

    def __init__(self, app: ServerApp) -> None:
        self.app = app
        self.ready_event, self.stop_event = asyncio.Event(), asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=LimitedHttpProtocol,
                ws=LimitedWebSocketProtocol,
                ws_max_size=MAX_BODY_BYTES,
                ws_per_message_deflate=False,
                lifespan="off",
                backlog=ACCEPT_BATCH,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def has_connections(self) -> bool:
        """Whether a client is connected."""
        return bool(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(LISTEN_QUEUE)  # the accept batch stays as configured
        self.ready_event.set()

    async def main_loop(self) -> None:
        """Run until the stop event is set. The loop of uvicorn itself polls only ten times per second."""
        tick_task = asyncio.create_task(super().main_loop())
        try:
            await self.stop_event.wait()
        finally:
            tick_task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.closing.set()
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def run_server(app: ServerApp, sockets: list[socket.socket]) -> AsyncIterator[GracefulServer]:
    """Serve while the context is open; then stop accepting and let running requests finish."""
    server = GracefulServer(app)
    serve_task = asyncio.create_task(server.serve(sockets))
    try:
        await server.ready_event.wait()
        yield server
    finally:
        server.stop_event.set()
        await serve_task
