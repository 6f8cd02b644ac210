"""A server that is running: uvicorn with our limits, on sockets that are bound already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from nerve.server.app import App
from nerve.server.body import LARGEST
from nerve.server.frames import Frames
from nerve.server.protocol import ACCEPTED_AT_ONCE, CONNECTIONS, Connection

GRACE = 5
"""Seconds in which requests may end when the server stops."""
KEPT = 20
"""Seconds for which a connection that nobody uses is kept; longer than clients do (5 to 15, mostly), so that
none is closed in the moment in which it is used again."""


class Server(uvicorn.Server):
    """Stops when it is told to, and leaves the signals to whoever runs it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.listening, self.leaving = asyncio.Event(), asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws=Frames,
                ws_max_size=LARGEST,
                ws_per_message_deflate=False,
                lifespan="off",
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEPT,
                timeout_graceful_shutdown=GRACE,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def has_connections(self) -> bool:
        """Whether somebody is connected."""
        return bool(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(CONNECTIONS)  # which may wait; what is accepted at once stays as it is configured
        self.listening.set()

    async def main_loop(self) -> None:
        """Until it is told to leave: uvicorn's own looks only ten times a second whether it was."""
        ticking = asyncio.create_task(super().main_loop())
        try:
            await self.leaving.wait()
        finally:
            ticking.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.closing.set()
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def running(app: App, sockets: list[socket.socket]) -> AsyncIterator[Server]:
    """Serve until the block is left; then nothing more is accepted, and what was begun may end."""
    server = Server(app)
    serving = asyncio.create_task(server.serve(sockets))
    try:
        await server.listening.wait()
        yield server
    finally:
        server.leaving.set()
        await serving
