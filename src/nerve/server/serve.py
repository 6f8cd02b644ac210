"""Serving a project: its definitions, runs and sockets, from the start to a stop that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerve import __version__
from nerve.api import Api
from nerve.core.session import Session
from nerve.ownership import foreign_state, refusal_of, sign_server, write_private
from nerve.places import Places
from nerve.server.app import app
from nerve.server.auth import Auth
from nerve.server.idle import idle
from nerve.server.listening import Unsafe, bind_tcp, bind_unix, is_loopback
from nerve.server.reloading import load_all, reloading
from nerve.server.running import running
from nerve.server.tokens import tokens

log = logging.getLogger("nerve")

PORT = 7433
"""Where a server listens if nobody says so and nobody else does; any free port otherwise."""
LAST = 14.0
"""Seconds after which a server that was told to stop is gone, whatever its steps are doing."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that is ready: what its owner may want to print."""

    url: str
    socket: str
    token_file: str
    workflows: int
    recovered: int
    problems: list[dict[str, Any]]
    auth: Auth

    @property
    def launch_url(self) -> str:
        """An address that signs in one browser; the code is behind the #, so that it is sent to nobody."""
        return f"{self.url}/#code={self.auth.launch_code()}"


def serve(
    project: str | os.PathLike[str] = ".",
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    hosts: Iterable[str] = (),
    wide: bool = False,
    idle: float | None = None,
    modules: Iterable[Path] = (),
    prepare: Callable[[Session], None] | None = None,
    ready: Callable[[Serving], None] | None = None,
) -> int:
    """Serve a project until SIGTERM or Ctrl-C. Unsafe says why it cannot.

    `hosts` are more names by which it is reached, as browsers write them; `wide` says that other machines
    may; `idle` ends it after so many seconds in which nobody was connected and nothing went on; `prepare`
    registers what is written in Python, which `modules` has; `ready` is called when it listens.
    """
    code = tuple(str(file.absolute()) for file in modules)
    where = Listening(host, port, tuple(hosts), wide, idle, code)
    asyncio.run(_serve(Places.of(project), where, prepare, ready))
    return 0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server is to listen, under which names, and for how long if nobody comes."""

    host: str
    port: int | None
    hosts: tuple[str, ...]
    wide: bool
    idle: float | None = None
    modules: tuple[str, ...] = ()
    """What it was given besides, for whoever starts it again."""

    def bind(self) -> socket.socket:
        if self.port is None:
            with contextlib.suppress(Unsafe):
                return bind_tcp(self.host, PORT, self.wide)
        return bind_tcp(self.host, self.port or 0, self.wide)

    def address(self, bound: socket.socket) -> str:
        """How it is reached from this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"

    def names(self, address: str) -> tuple[str, ...]:
        return self.hosts if is_loopback(address.rpartition(":")[0]) else (address, *self.hosts)


async def _serve(
    places: Places,
    where: Listening,
    prepare: Callable[[Session], None] | None,
    ready: Callable[[Serving], None] | None,
) -> None:
    if places.elsewhere:
        wrong, _, fix = places.elsewhere.rpartition(". ")
        raise Unsafe(wrong, fix)
    if foreign := foreign_state(places.folder.parent):
        raise Unsafe(*refusal_of([*foreign]))
    path = places.socket
    with stopping() as stop, contextlib.ExitStack() as bound:
        tcp = bound.enter_context(where.bind())
        known = tokens(places.private)
        unix = bound.enter_context(bind_unix(path))
        bound.callback(path.unlink, missing_ok=True)
        address = where.address(tcp)
        auth = Auth(known, where.names(address))
        about = {
            "url": f"http://{address}",
            "socket": str(path),
            "token_file": str(places.token),
        }
        async with (
            opened(places, prepare) as (api, problems, recovered),
            running(app(api, auth), [tcp, unix]) as server,
            reloading(api),
        ):
            settle()
            with told(places.server, {**about, "modules": where.modules, "idle": where.idle}):
                if ready is not None:
                    found = len(api.session.list_workflows())
                    ready(
                        Serving(**about, workflows=found, recovered=recovered, problems=problems, auth=auth)
                    )
                if where.idle is None:
                    await stop.wait()
                else:
                    await needed(stop, idle(where.idle, api.session, server.has_connections))


def settle() -> None:
    """What is there for good is not looked through for garbage again and again, while everybody waits."""
    gc.collect()
    gc.freeze()


async def needed(stop: asyncio.Event, idle: Awaitable[None]) -> None:
    """Return when a server was told to stop, or is not needed any more."""
    waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(idle)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if waits[1].done():
            waits[1].result()
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


@contextlib.asynccontextmanager
async def opened(
    places: Places, prepare: Callable[[Session], None] | None
) -> AsyncIterator[tuple[Api, list[dict[str, Any]], int]]:
    """The project's session with all its definitions, going on with the runs that were open."""
    async with Session(store=places.store, project=places.folder.parent) as session:
        if prepare is not None:
            prepare(session)
        api = Api(session)
        problems = await load_all(api)
        recovered = await session.recover()
        for left in session.engine.left_alone:
            log.warning("run %s of '%s' is left alone: %s", left.run, left.workflow, left.reason)
        yield api, problems, len(recovered)


@contextlib.contextmanager
def stopping() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and Ctrl-C set. From then on there is only so much time."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    last = threading.Timer(LAST, os._exit, [1])
    last.daemon = True

    def asked() -> None:
        if not stop.is_set():
            stop.set()
            last.start()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, asked)
    try:
        yield stop
    finally:
        last.cancel()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)


@contextlib.contextmanager
def told(path: Path, about: dict[str, Any]) -> Iterator[None]:
    """Write where the server is, for those who may read it, as long as it is there."""
    about = {**about, "pid": os.getpid(), "version": __version__}
    write_private(path, json.dumps(sign_server(path, about)))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
