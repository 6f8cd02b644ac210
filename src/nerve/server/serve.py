"""Serve a project: bind sockets, load definitions, recover runs, and shut down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from nerve import __version__
from nerve.api import Api
from nerve.core.step_output import capture_standard_streams
from nerve.core.workflow import WorkflowState
from nerve.errors import OwnershipLost, StoreFailed, StoreInUse
from nerve.lazy_dataclass import dataclass
from nerve.project.ownership import foreign_state, refusal_of, sign_server, write_private
from nerve.project.paths import ProjectPaths
from nerve.server.app import make_app
from nerve.server.auth import Auth
from nerve.server.bind import UnsafeServerSetup, bind_tcp, bind_unix, is_loopback
from nerve.server.failure_log import log_failures
from nerve.server.hot_reload import load_definitions, reload_on_change
from nerve.server.tokens import load_tokens
from nerve.server.uvicorn_server import run_server
from nerve.session import Session
from nerve.session.project_store import open_plain_store
from nerve.store.port import Store
from nerve.telemetry.json_log import log_as_json

log = logging.getLogger("nerve")

DEFAULT_PORT = 7433
"""Default port. If it is in use, the server takes any free port."""
OTHER_FILES = 1024
"""Open files of a server other than its connections: the store, agents, steps."""
FORCED_EXIT_S = 14.0
"""Seconds after a stop request at which the process exits, even if steps are still running."""
CHECKS_PER_PERIOD = 5
"""Number of checks within the idle period."""
SESSION_NAME = "default"
"""The session of a project."""
CLAIM_INTERVAL_S = 1.0
"""Seconds between two attempts to own the session of a store in PostgreSQL."""
CONTINUING_STATES = ("pending", "running", "pausing", "stopping")
"""States in which a run continues by itself."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Information about a server that is ready."""

    url: str
    socket: str
    token_file: str
    workflows: int
    recovered: int
    problems: list[dict[str, Any]]
    auth: Auth

    @property
    def launch_url(self) -> str:
        """A URL that signs in one browser. The code is in the fragment, which browsers do not send."""
        return f"{self.url}/#code={self.auth.create_launch_code()}"


def serve(
    project: str | os.PathLike[str] = ".",
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    hosts: Iterable[str] = (),
    wide: bool = False,
    prefix: str = "",
    idle: float | None = None,
    store: str | None = None,
    log_json: bool = False,
    modules: Iterable[Path] = (),
    prepare: Callable[[Session], None] | None = None,
    ready: Callable[[RunningServer], None] | None = None,
) -> int:
    """Serve a project until SIGTERM or Ctrl-C. Raises UnsafeServerSetup if it cannot start.

    `hosts` are additional host names with port that clients may use. `wide` allows other machines.
    `prefix` is the path under which a proxy serves the web page. `idle` is the number of seconds without
    connections and active runs after which the server exits. `log_json` writes the log as JSON lines.
    `store` is the URL of a database in PostgreSQL. If another process owns its session, the server waits
    and takes over when that process has ended. `prepare` registers the Python code of `modules`. `ready`
    is called when the server listens.
    """
    code = tuple(str(file.absolute()) for file in modules)
    options = ListenOptions(host, port, tuple(hosts), wide, idle, code, prefix, store)
    # To the stream itself: the captured one drops what handlers of logging print in steps.
    with log_as_json(sys.stderr) if log_json else contextlib.nullcontext(), capture_standard_streams():
        asyncio.run(_serve_project(ProjectPaths.of(project), options, prepare, ready))
    return 0


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Address, host names and idle timeout of a server."""

    host: str
    port: int | None
    hosts: tuple[str, ...]
    wide: bool
    idle: float | None = None
    modules: tuple[str, ...] = ()
    """Files given with --with, published so that a restart uses them again."""
    prefix: str = ""
    store_url: str | None = None

    def bind(self) -> socket.socket:
        if self.port is None:
            with contextlib.suppress(UnsafeServerSetup):
                return bind_tcp(self.host, DEFAULT_PORT, self.wide)
        return bind_tcp(self.host, self.port or 0, self.wide)

    def address(self, bound: socket.socket) -> str:
        """Return host and port for clients on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"

    def host_names(self, address: str) -> tuple[str, ...]:
        return self.hosts if is_loopback(address.rpartition(":")[0]) else (address, *self.hosts)


async def _serve_project(
    places: ProjectPaths,
    options: ListenOptions,
    prepare: Callable[[Session], None] | None,
    ready: Callable[[RunningServer], None] | None,
) -> None:
    if places.symlink_problem:
        wrong, _, fix = places.symlink_problem.rpartition(". ")
        raise UnsafeServerSetup(wrong, fix)
    foreign = foreign_state(places.folder.parent)
    if options.store_url is not None:
        foreign.pop("runs", None)  # the file is not used
    if foreign:
        raise UnsafeServerSetup(*refusal_of([*foreign]))
    socket_path = places.socket
    with stop_on_signals() as stop, contextlib.ExitStack() as bound:
        tcp = bound.enter_context(options.bind())
        scope_tokens = load_tokens(places.private)
        unix = bound.enter_context(bind_unix(socket_path))
        bound.callback(socket_path.unlink, missing_ok=True)
        address = options.address(tcp)
        auth = Auth(scope_tokens, options.host_names(address))
        about = {
            "url": f"http://{address}",
            "socket": str(socket_path),
            "token_file": str(places.token),
        }
        store = places.store if options.store_url is None else await claim_session(options.store_url, stop)
        if store is None:
            return
        async with (
            open_project_session(places, store, prepare) as (api, problems, recovered),
            run_server(app := make_app(api, auth, prefix=options.prefix), [tcp, unix]) as server,
            reload_on_change(api),
        ):
            gc.collect()
            gc.freeze()  # a collection of the long-lived objects would pause the server
            app.max_connections = reserve_files(app.max_connections)
            with publish_server_info(
                places.server, {**about, "modules": options.modules, "idle": options.idle}
            ):
                if ready is not None:
                    workflow_count = len(api.session.list_workflows())
                    ready(
                        RunningServer(
                            **about,
                            workflows=workflow_count,
                            recovered=recovered,
                            problems=problems,
                            auth=auth,
                        )
                    )
                if options.idle is None:
                    await stop.wait()
                else:
                    await wait_until_server_idle(options.idle, api.session, server.has_connections, stop)


def reserve_files(connections: int) -> int:
    """Allow as many open files as the connections need; return how many connections the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    if allowed == needed:
        return connections
    fitting = allowed - min(OTHER_FILES, allowed // 2)
    log.warning(
        "The system allows %d open files, so the server accepts %d connections instead of %d. "
        "Raise the limit, for example with ulimit -Hn %d, or lower max_connections.",
        allowed,
        fitting,
        connections,
        needed,
    )
    return fitting


async def claim_session(url: str, stop: asyncio.Event) -> Store | None:
    """Return the store in PostgreSQL when no other process owns the session; None after a stop request."""
    is_waiting = False
    while not stop.is_set():
        try:
            return await asyncio.to_thread(open_plain_store, url, SESSION_NAME)
        except StoreInUse as error:
            if not is_waiting:
                log.warning("%s This server takes over when that process has ended.", error)
            is_waiting = True
        except StoreFailed as error:
            if not is_waiting:
                raise
            log.warning("%s", error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), CLAIM_INTERVAL_S)
    return None


@contextlib.asynccontextmanager
async def open_project_session(
    places: ProjectPaths, store: Path | Store, prepare: Callable[[Session], None] | None
) -> AsyncIterator[tuple[Api, list[dict[str, Any]], int]]:
    """Open the project session with its definitions, and recover open runs.

    If another process takes over the session, stop this one and raise OwnershipLost at the end.
    """
    lost: list[OwnershipLost] = []

    def on_ownership_lost(error: OwnershipLost) -> None:
        lost.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    async with Session(store=store, project=places.folder.parent) as session:
        if prepare is not None:
            prepare(session)
        api = Api(session)
        session.engine.watchers.append(log_failures)
        session.engine.ownership_watchers.append(on_ownership_lost)
        problems = await load_definitions(api)
        recovered = await session.recover()
        for skipped in session.engine.skipped_runs:
            log.warning("skipped run %s of '%s': %s", skipped.run, skipped.workflow, skipped.reason)
        yield api, problems, len(recovered)
    if lost:
        raise lost[0]


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM and Ctrl-C set. The first signal also starts the forced-exit timer."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    last = threading.Timer(FORCED_EXIT_S, os._exit, [1])
    last.daemon = True

    def request_stop() -> None:
        if not stop.is_set():
            stop.set()
            last.start()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, request_stop)
    try:
        yield stop
    finally:
        last.cancel()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signal_number)


@contextlib.contextmanager
def publish_server_info(path: Path, info: dict[str, Any]) -> Iterator[None]:
    """Publish the server info in a private file while the server runs."""
    info = {**info, "pid": os.getpid(), "version": __version__}
    write_private(path, json.dumps(sign_server(path, info)))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def wait_until_server_idle(
    seconds: float, session: Session, connected: Callable[[], bool], stop: asyncio.Event
) -> None:
    """Return after this many seconds without connections and without runs that can continue by themselves.

    A stop request ends the wait.
    """
    quiet = 0
    while quiet < CHECKS_PER_PERIOD and not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds / CHECKS_PER_PERIOD)
        quiet = 0 if connected() or has_active_runs(session) else quiet + 1


def has_active_runs(session: Session) -> bool:
    """Whether a run is active or has a timer that will wake it."""
    engine = session.engine
    skipped_ids = {skipped.run for skipped in engine.skipped_runs} - set(engine.executors)
    rows = engine.store.runs(session=session.name, states=[*CONTINUING_STATES, WorkflowState.WAITING.value])
    return any(
        row.run not in skipped_ids and (row.state in CONTINUING_STATES or row.wake is not None)
        for row in rows
    )
