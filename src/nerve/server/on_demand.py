"""Serve the session of a command on the project's socket: the server starts with the first connection.

A command that drives runs owns the store, so other commands of the project can only reach it through that
command. The sockets are bound at once, and the kernel holds connections until the server has started; without
connections, no server is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from nerve.project.ownership import foreign_state
from nerve.project.paths import ProjectPaths
from nerve.server.bind import UnsafeServerSetup, bind_tcp, bind_unix
from nerve.server.published_info import publish_server_info
from nerve.server.tokens import load_tokens

if TYPE_CHECKING:
    from nerve.api import Api
    from nerve.server.uvicorn_server import GracefulServer

log = logging.getLogger("nerve")

HOST = "127.0.0.1"
MAX_CONNECTIONS = 100
SERVER_MODULES = ("nerve.server.app", "nerve.server.auth", "nerve.server.uvicorn_server")


class OnDemandServer:
    """Bound sockets, and the server on them once a client has connected."""

    def __init__(self, sockets: list[socket.socket], paths: ProjectPaths) -> None:
        self._sockets, self._paths = sockets, paths
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._server: GracefulServer | None = None

    @property
    def has_connections(self) -> bool:
        """Whether a client is connected."""
        return self._server is not None and self._server.has_connections()

    @property
    def is_started(self) -> bool:
        """Whether a client has ever connected."""
        return self._task is not None

    async def wait_until_unused(self, timeout: float) -> None:
        """Return when no client is connected, or after this many seconds."""
        end = asyncio.get_running_loop().time() + timeout
        while self.has_connections and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)

    def start_on_connection(self, api: Api) -> None:
        """Serve the API as soon as a client connects."""
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.add_reader(each.fileno(), self._start, api)

    def _start(self, api: Api) -> None:
        self._remove_readers()
        self._task = asyncio.create_task(self._serve(api))

    def _remove_readers(self) -> None:
        for each in self._sockets:
            if each.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(each.fileno())

    async def _serve(self, api: Api) -> None:
        for name in SERVER_MODULES:  # not in the event loop, because runs are in progress
            await asyncio.to_thread(importlib.import_module, name)
        from nerve.server.app import make_app
        from nerve.server.auth import Auth
        from nerve.server.hot_reload import reload_on_change
        from nerve.server.uvicorn_server import run_server

        tcp_port = self._sockets[0].getsockname()[1]
        app = make_app(api, Auth(load_tokens(self._paths.private), (f"{HOST}:{tcp_port}",)))
        app.max_connections = min(app.max_connections, MAX_CONNECTIONS)
        async with run_server(app, self._sockets) as self._server, reload_on_change(api):
            await self._stop.wait()

    async def close(self) -> None:
        """Stop serving, and let running requests finish."""
        self._paths.server.unlink(missing_ok=True)
        self._paths.socket.unlink(missing_ok=True)  # the next command must not connect any more
        self._remove_readers()
        self._stop.set()
        if self._task is not None:
            try:
                await self._task
            except Exception as error:  # the run of the command does not depend on it
                log.warning("The command could not serve the project: %s", error)


@contextlib.asynccontextmanager
async def serve_on_demand(
    paths: ProjectPaths, command: str, modules: Iterable[str] = ()
) -> AsyncIterator[OnDemandServer | None]:
    """Listen for the other commands of the project; None if it is not possible, or not safe.

    `command` is what the user has called; it is published with the address.
    """
    with contextlib.ExitStack() as bound:
        try:
            if paths.symlink_problem or foreign_state(paths.folder.parent):
                raise UnsafeServerSetup("The project has state of another user", "Review it")
            load_tokens(paths.private)
            tcp = bound.enter_context(bind_tcp(HOST, 0))
            bound.callback(remove_temporary_folder, paths)
            unix = bound.enter_context(bind_unix(paths.socket))
            bound.callback(paths.socket.unlink, missing_ok=True)
            info = {
                "url": f"http://{HOST}:{tcp.getsockname()[1]}",
                "socket": str(paths.socket),
                "token_file": str(paths.token),
                "modules": list(modules),
                "idle": None,
                "command": command,
            }
            bound.enter_context(publish_server_info(paths.server, info))
        except (OSError, UnsafeServerSetup):
            yield None
            return
        server = OnDemandServer([tcp, unix], paths)
        try:
            yield server
        finally:
            await server.close()


def remove_temporary_folder(paths: ProjectPaths) -> None:
    """Remove the folder of the socket if it is a temporary one and empty."""
    if paths.socket.parent != paths.private:
        with contextlib.suppress(OSError):
            paths.socket.parent.rmdir()
