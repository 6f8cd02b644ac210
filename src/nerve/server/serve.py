"""Serve a project: bind sockets, load definitions, recover runs, and shut down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.api import Api
from nerve.api.service import execute_operation
from nerve.background_tasks import END_SIGNALS, handle_signals, wait_for_event
from nerve.core.step_output import capture_standard_streams
from nerve.core.workflow import WorkflowState
from nerve.errors import OwnershipLost, StoreFailed, StoreInUse
from nerve.lazy_dataclass import dataclass
from nerve.project.ownership import foreign_state, refusal_of
from nerve.project.paths import ProjectPaths
from nerve.server.app import make_app
from nerve.server.auth import Auth
from nerve.server.bind import UnsafeServerSetup, bind_tcp, bind_unix, is_loopback
from nerve.server.failure_log import log_failures
from nerve.server.hot_reload import load_definitions, reload_on_change
from nerve.server.published_info import publish_server_info
from nerve.server.tokens import load_tokens
from nerve.server.uvicorn_server import run_server
from nerve.session import Session
from nerve.store.port import Store
from nerve.telemetry.json_log import log_as_json
from nerve.triggers import run_triggers

if TYPE_CHECKING:
    from nerve.api.shared_session import SharedSession
    from nerve.project.engine_url import TemporalAddress
    from nerve.store.postgres import PostgresStore

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
STANDBY_NOTICE = (
    "This server shows its runs and passes commands on. It takes over when that process has ended."
)
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
    executes_runs: bool = True
    """Whether this server executes the runs; otherwise another process does, and this one may take over."""

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
    engine: TemporalAddress | None = None,
    log_json: bool = False,
    modules: Iterable[Path] = (),
    prepare: Callable[[Session], None] | None = None,
    ready: Callable[[RunningServer], None] | None = None,
) -> int:
    """Serve a project until SIGTERM or Ctrl-C. Raises UnsafeServerSetup if it cannot start.

    `hosts` are additional host names with port that clients may use. `wide` allows other machines.
    `prefix` is the path under which a proxy serves the web page. `idle` is the number of seconds without
    connections and active runs after which the server exits. `log_json` writes the log as JSON lines.
    `store` is the URL of a database in PostgreSQL. If another process owns its session, the server reads
    there, passes commands on, and takes over when that process has ended. With `engine`, a Temporal cluster
    executes the runs. `prepare` registers the Python
    code of `modules`. `ready` is called when the server listens.
    """
    code = tuple(str(file.absolute()) for file in modules)
    options = ListenOptions(host, port, tuple(hosts), wide, idle, code, prefix, store, engine)
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
    engine: TemporalAddress | None = None

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
        async with (
            open_api(places, options, prepare, stop) as (api, problems, recovered),
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
                            executes_runs=api.executes_runs,
                        )
                    )
                if options.idle is None:
                    await stop.wait()
                else:
                    await wait_until_server_idle(options.idle, api, server.has_connections, stop)


def open_api(
    places: ProjectPaths,
    options: ListenOptions,
    prepare: Callable[[Session], None] | None,
    stop: asyncio.Event,
) -> contextlib.AbstractAsyncContextManager[tuple[Api, list[dict[str, Any]], int]]:
    """Open the API of a project, with the problems of its definitions and the number of resumed runs."""
    if options.store_url is None:
        return open_project_session(places, places.store, prepare)
    if options.engine is not None:
        return open_temporal_session(places, options.store_url, options.engine, prepare)
    return open_shared_session(places, options.store_url, prepare, stop)


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
        async with run_triggers(session), open_chats(session):
            yield api, problems, len(recovered)
    if lost:
        raise lost[0]


@contextlib.asynccontextmanager
async def open_chats(session: Session) -> AsyncIterator[None]:
    """Reply in the chats of a project in this block, if it has any."""
    if not session.config.chat:
        yield
        return
    # Imported here: few projects have chats.
    from nerve.api.chat_runner import run_chats

    async with run_chats(session):
        yield


@contextlib.asynccontextmanager
async def open_shared_session(
    places: ProjectPaths, url: str, prepare: Callable[[Session], None] | None, stop: asyncio.Event
) -> AsyncIterator[tuple[Api, list[dict[str, Any]], int]]:
    """Open a session that other servers may use too: execute its runs when no other process does."""
    from nerve.api.shared_session import SharedSession

    claim = SessionClaim(places, url, prepare, stop)
    session = SharedSession(url, places.folder.parent, execute_operation, prepare)
    async with session.open() as shared, claim.keep(shared):
        await claim.first_attempt
        yield Api(shared), shared.problems, claim.recovered
    if claim.error is not None:
        raise claim.error


@contextlib.asynccontextmanager
async def open_temporal_session(
    places: ProjectPaths, url: str, engine: TemporalAddress, prepare: Callable[[Session], None] | None
) -> AsyncIterator[tuple[Api, list[dict[str, Any]], int]]:
    """Open a session whose runs a Temporal cluster executes."""
    from nerve.api.shared_session import SharedSession

    session = SharedSession(
        url, places.folder.parent, execute_operation, prepare, engine=engine, is_server=True
    )
    async with session.open() as shared:
        if shared.session.config.chat:
            log.warning(
                "The chats of the project are not served, because a Temporal cluster executes the runs."
            )
        yield Api(shared), shared.problems, 0


class SessionClaim:
    """Takes a session over when no other process owns it, and executes its runs until the end."""

    def __init__(
        self,
        places: ProjectPaths,
        url: str,
        prepare: Callable[[Session], None] | None,
        stop: asyncio.Event,
    ) -> None:
        self._places, self._url, self._prepare, self._stop = places, url, prepare, stop
        self.first_attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the session is owned, or another process was found to own it."""
        self.recovered = 0
        self.error: BaseException | None = None
        self._end = asyncio.Event()

    @contextlib.asynccontextmanager
    async def keep(self, shared: SharedSession) -> AsyncIterator[None]:
        """Claim the session in the background; give it up at the end of the context."""
        task = asyncio.create_task(self._claim_and_execute(shared))
        try:
            yield
        finally:
            self._end.set()
            await task

    async def _claim_and_execute(self, shared: SharedSession) -> None:
        try:
            store = await self._claim()
            if store is not None:
                await self._execute(shared, store)
        except BaseException as error:
            self.error = error
            if not self.first_attempt.done():
                self.first_attempt.set_exception(error)
                self.error = None  # the one who waits for the attempt raises it
            self._stop.set()
        finally:
            if not self.first_attempt.done():
                self.first_attempt.set_result(None)

    async def _claim(self) -> PostgresStore | None:
        """Return the store when no other process owns the session; None if the server ends first."""
        from nerve.store.postgres import PostgresStore

        is_waiting = False
        while not (self._end.is_set() or self._stop.is_set()):
            try:
                return await asyncio.to_thread(PostgresStore, self._url, SESSION_NAME)
            except StoreInUse as error:
                if not is_waiting:
                    log.warning("%s executes the runs of this store. %s", error.owner, STANDBY_NOTICE)
                is_waiting = True
                if not self.first_attempt.done():
                    self.first_attempt.set_result(None)
            except StoreFailed as error:
                if not is_waiting:
                    raise
                log.warning("%s", error)
            for event in (self._end, self._stop):
                await wait_for_event(event, CLAIM_INTERVAL_S / 2)
        return None

    async def _execute(self, shared: SharedSession, store: PostgresStore) -> None:
        is_takeover = self.first_attempt.done()
        async with (
            open_project_session(self._places, store, self._prepare) as (api, _, recovered),
            shared.own(api.session, store.epoch),
        ):
            self.recovered = recovered
            if is_takeover:
                log.warning("This server executes the runs now; %d were resumed.", recovered)
            else:
                self.first_attempt.set_result(None)
            await self._end.wait()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM and Ctrl-C set. The first signal also starts the forced-exit timer."""
    stop = asyncio.Event()
    last = threading.Timer(FORCED_EXIT_S, os._exit, [1])
    last.daemon = True

    def request_stop() -> None:
        if not stop.is_set():
            stop.set()
            last.start()

    try:
        with handle_signals(END_SIGNALS, request_stop):
            yield stop
    finally:
        last.cancel()


async def wait_until_server_idle(
    seconds: float, api: Api, connected: Callable[[], bool], stop: asyncio.Event
) -> None:
    """Return after this many seconds without connections and without runs that can continue by themselves.

    A stop request ends the wait.
    """
    quiet = 0
    while quiet < CHECKS_PER_PERIOD and not stop.is_set():
        await wait_for_event(stop, seconds / CHECKS_PER_PERIOD)
        is_active = connected() or (api.executes_runs and await api.measure(measure_activity))
        quiet = 0 if is_active else quiet + 1


async def measure_activity(session: Session) -> bool:
    return has_active_runs(session)


def has_active_runs(session: Session) -> bool:
    """Whether a run is active or has a timer that will wake it."""
    engine = session.engine
    skipped_ids = {skipped.run for skipped in engine.skipped_runs} - set(engine.executors)
    rows = engine.store.runs(session=session.name, states=[*CONTINUING_STATES, WorkflowState.WAITING.value])
    return any(
        row.run not in skipped_ids and (row.state in CONTINUING_STATES or row.wake is not None)
        for row in rows
    )
