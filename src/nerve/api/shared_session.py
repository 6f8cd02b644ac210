"""A session in PostgreSQL as one of several processes uses it.

Each process reads for itself, in a thread of its own. Commands are executed by the one that owns the session:
the others send them through the database, with which they are executed once, also if the owner changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from nerve.api import queries
from nerve.api.callers import Caller
from nerve.api.errors import ApiError, to_api_error
from nerve.api.models import ApiRequest, ApiResponse, EmptyRequest, HealthResponse, ReloadRequest
from nerve.api.operations import OPERATIONS, Operation
from nerve.api.reading_thread import UNLIMITED, ReadingThread
from nerve.api.reload import reload
from nerve.api.request_parsing import parse_request
from nerve.api.stored_event_hub import StoredEventHub
from nerve.background_tasks import cancel_tasks, run_in_background, wait_for_event
from nerve.codec import Codec, decode_text, encode_text
from nerve.errors import OwnershipLost, StoreError
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_commands import ChangeListener, PostgresCommands, SentCommand

if TYPE_CHECKING:
    from nerve.api.cluster_leader import ClusterLeader
    from nerve.api.event_hub import EventFrame
    from nerve.api.models import EventResponse
    from nerve.project.engine_url import TemporalAddress
    from nerve.session import Session
    from nerve.store.port import EventStream
    from nerve.telemetry.metrics import Metric, SessionMetrics
    from nerve.telemetry.stream_telemetry import StreamTelemetry

T = TypeVar("T")
log = logging.getLogger("nerve")

COMMAND_PATIENCE_S = 15.0
"""Seconds in which an owner must begin a command; longer than another process needs to take over."""
QUERY_PATIENCE_S = 2.0
"""Seconds for a query that can be answered without the owner."""
POLL_INTERVAL_S = 1.0
"""Seconds between two looks at the database without any news."""
SHUTDOWN_GRACE_S = 2.0
"""Seconds for the commands in progress when the owner ends; the next owner executes the others again."""
OWNER_QUERIES = frozenset({"query", "queues"})
"""Queries that only the process can answer that executes the runs."""
MEMORY_QUERIES = frozenset({"agents", "queues", "query", "workflows", "workflow"})
"""Queries that the owner answers from memory."""
LEADER_COMMANDS = frozenset({"define_trigger", "remove_trigger", "pause_trigger", "resume_trigger"})
"""Commands that the server executes that starts the runs of the triggers."""
LOCAL_COMMANDS = frozenset({"receive_chat"})
"""Commands that only the local engine executes."""
DEFINING_COMMANDS = frozenset({"define", "assert_fact"})
"""Commands that define workflows by facts."""
DEFINITION_QUERIES = frozenset({"workflows", "workflow"})
"""Queries for what a start can name, which the owner knows; without one, the files of this project."""
FACT_QUERIES = frozenset({"facts", "workflows", "workflow", "definitions", "definition"})
"""Queries that depend on the facts of the session."""

ExecuteOperation = Callable[["Session", Operation, ApiRequest], Awaitable[ApiResponse]]
PrepareSession = Callable[["Session"], None]


class NotExecuted(ApiError):
    """No process has taken a command, and none will."""


class SharedSession:
    """Executes operations on a session: reads here, and commands here or in the process that owns it."""

    def __init__(
        self,
        url: str,
        project: Path,
        execute: ExecuteOperation,
        prepare: PrepareSession | None = None,
        name: str = "default",
        engine: TemporalAddress | None = None,
        is_server: bool = False,
    ) -> None:
        """`execute` executes an operation on a session, `prepare` registers Python code in each session.

        With an `engine`, a Temporal cluster executes the runs, and no process owns the session. Of its
        servers, one sends the telemetry, and one starts the runs of triggers and sends notifications.
        """
        self.url, self.project, self.name = url, project, name
        self.execute, self._prepare, self._engine = execute, prepare, engine
        self._is_server = is_server
        self._store: PostgresStore | None = None
        self._reads = ReadingThread(self._open_reader, self._interrupt_reads)
        self._reader: Session | None = None
        self._stored_hub: StoredEventHub | None = None
        self._telemetry: StreamTelemetry | None = None
        self._leader: ClusterLeader | None = None
        self.hub = SharedEventHub(self._reads, lambda: self._stored_hub)
        self.commands = PostgresCommands(url, name)
        self._listener = ChangeListener(url, name)
        self._reply_news = asyncio.Event()
        self._owner: Session | None = None
        self._executor: CommandExecutor | None = None
        self.problems: list[dict[str, Any]] = []
        """Problems in the definitions of the project."""
        self._fact_version = 0
        self._defined: set[str] = set()

    @property
    def session(self) -> Session:
        """The session that executes the runs here, or the one that reads."""
        session = self._owner or self._reader
        assert session is not None
        return session

    @property
    def is_owner(self) -> bool:
        """Whether this process executes the runs."""
        return self._owner is not None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[SharedSession]:
        """Read from the database until the end of the context."""
        self._reader = await self._reads.start()
        self._listener.on("events", self._on_events)
        self._listener.on("replies", self._on_replies)
        self._listener.on("commands", self._on_commands)
        try:
            async with run_in_background(self._listener.listen()):
                yield self
        finally:
            await self.commands.close()
            await self._reads.close()

    @contextlib.asynccontextmanager
    async def _open_reader(self) -> AsyncIterator[Session]:
        """Open the session that reads; called in its thread."""
        async with self._open_store() as session, session:
            if self._prepare is not None:
                self._prepare(session)
            self.problems = (await reload(session, ReloadRequest())).problems
            if self._engine is not None:
                self._refresh_facts(session)
                if self._fact_version:
                    # A server may have ended between the assertion of an instance and its start.
                    await session.dataspace.start_all()
            stream = session.engine.store.stream
            assert stream is not None
            self._stored_hub = StoredEventHub(session, stream)
            try:
                async with (
                    self._open_telemetry(session, stream, self._stored_hub),
                    self._open_leader(session, stream),
                ):
                    yield session
            finally:
                await self._stored_hub.close()

    @contextlib.asynccontextmanager
    async def _open_telemetry(
        self, session: Session, stream: EventStream, hub: StoredEventHub
    ) -> AsyncIterator[None]:
        """Send the telemetry of runs that no process owns, if it is switched on and no other server does."""
        is_sender = self._engine is not None and self._is_server
        settings = session.read_telemetry_settings() if is_sender else None
        if settings is None:
            yield
            return
        from nerve.session.temporal_api import open_leases
        from nerve.telemetry.stream_telemetry import StreamTelemetry

        def get_metrics() -> SessionMetrics:
            hub.count_events(session.metrics)
            return session.metrics

        with open_leases(self.url, self.name) as leases:
            self._telemetry = StreamTelemetry(
                session.engine, self.name, settings, get_metrics, stream, leases
            )
            async with self._telemetry.sending():
                yield

    @contextlib.asynccontextmanager
    async def _open_leader(self, session: Session, stream: EventStream) -> AsyncIterator[None]:
        """Start runs for triggers and send notifications, if no process owns the runs or does so already."""
        if self._engine is None or not self._is_server:
            yield
            return
        from nerve.api.cluster_leader import ClusterLeader
        from nerve.session.temporal_api import open_leases

        @contextlib.asynccontextmanager
        async def execute_commands() -> AsyncIterator[None]:
            commands = PostgresCommands(self.url, self.name)
            try:
                epoch = await commands.epoch()
            finally:
                await commands.close()
            async with execute_sent_commands(self.url, session, epoch, self.execute):
                yield

        with open_leases(self.url, self.name) as leases:
            self._leader = ClusterLeader(session, stream, leases, execute_commands)
            async with self._leader.leading():
                yield

    @contextlib.asynccontextmanager
    async def _open_store(self) -> AsyncIterator[Session]:
        from nerve.session import Session

        if self._engine is None:
            self._store = await asyncio.to_thread(PostgresStore, self.url, None)
            yield Session(self.name, self._store, project=self.project, telemetry=False)
            return
        from nerve.session.temporal_api import use_temporal_engine

        session = Session(self.name, project=self.project)
        async with use_temporal_engine(session, self._engine, self.url) as self._store:
            yield session

    def _interrupt_reads(self) -> None:
        if self._store is not None:
            self._store.interrupt()

    def _on_events(self) -> None:
        if self._stored_hub is not None:
            self._reads.call_soon(self._stored_hub.wake)
        if self._telemetry is not None:
            self._reads.call_soon(self._telemetry.wake)
        if self._leader is not None:
            self._reads.call_soon(self._leader.wake)

    def _on_commands(self) -> None:
        if self._executor is not None:
            self._executor.wake()

    def _on_replies(self) -> None:
        news, self._reply_news = self._reply_news, asyncio.Event()
        news.set()

    # -- the owner ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def own(self, session: Session, epoch: int) -> AsyncIterator[None]:
        """Execute commands on the session that owns the runs, until the end of the context."""
        self._owner = session
        self._executor = CommandExecutor(self.commands, session, epoch, self.execute, self)
        try:
            # Ends before the session closes: what it refuses then is left to the next owner.
            async with run_in_background(self._executor.execute_until_cancelled()):
                yield
        finally:
            self._owner = self._executor = None

    # -- operations --------------------------------------------------------------------------------

    async def perform(self, operation: Operation, request: ApiRequest) -> ApiResponse:
        """Execute an operation that the caller may execute."""
        if operation.name == "health":
            return await self._health(request)
        if self._engine is not None and (operation.is_command or operation.name == "query"):
            return await self._command_engine(operation, request)
        is_for_owner = operation.is_command or operation.name in OWNER_QUERIES
        if is_for_owner and self._engine is None:
            if operation.name == "reload":
                await self._reads.execute(lambda session: reload(session, ReloadRequest()))
            if (owner := self._owner) is None:
                return await self._send(operation, request)
            # A server that does not answer delays this request only, not the runs.
            await self._reads.execute(check_store)
            return await self.execute(owner, operation, request)
        if self._owner is not None and operation.name in MEMORY_QUERIES:
            return await self.execute(self._owner, operation, request)
        if self._owner is None and self._engine is None and operation.name in DEFINITION_QUERIES:
            with contextlib.suppress(NotExecuted):
                return await self._send(operation, request, QUERY_PATIENCE_S)
        return await self.read(lambda session: self._query(session, operation, request))

    async def _command_engine(self, operation: Operation, request: ApiRequest) -> ApiResponse:
        """Execute a command on the engine that executes the runs elsewhere."""
        if operation.name in LOCAL_COMMANDS:
            raise ApiError(
                "refused",
                f"'{operation.name}' is not available for runs in {self._engine}",
                "See what is: docs/guides/temporal.md",
            )
        is_leader = self._leader is not None and self._leader.is_leading
        if operation.name in LEADER_COMMANDS and not is_leader:
            return await self._send(operation, request)
        return await self._reads.execute(
            lambda session: self._execute_with_facts(session, operation, request), UNLIMITED
        )

    async def _execute_with_facts(
        self, session: Session, operation: Operation, request: ApiRequest
    ) -> ApiResponse:
        """Execute a command with the facts that all processes change, and the workflows they define."""
        from nerve.api.conversation import MESSAGE_OPERATION, execute_message

        self._refresh_facts(session)
        before = set(session.workflows)
        try:
            if operation is MESSAGE_OPERATION:
                return await execute_message(session, request)
            return await self.execute(session, operation, request)
        finally:
            if operation.name in DEFINING_COMMANDS:
                self._defined |= set(session.workflows) - before

    async def _query(self, session: Session, operation: Operation, request: ApiRequest) -> ApiResponse:
        if operation.name in FACT_QUERIES:
            self._refresh_facts(session)
        session.forget_rate_limits()
        return await self.execute(session, operation, request)

    def _refresh_facts(self, session: Session) -> None:
        """Load the facts again, and the workflows that they define."""
        session.engine.forget_dataspace()
        version = session.engine.store.fact_version(self.name)
        if version == self._fact_version:
            return
        for name in self._defined:
            session.delete_workflow(name)
        before = set(session.workflows)
        session.dataspace.define_all()
        self._defined = set(session.workflows) - before
        self._fact_version = version

    async def read(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Return the result of a coroutine with the session that reads, in its thread."""
        return await self._reads.execute(work)

    async def measure(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Return the result of a coroutine with the session that executes the runs here, or that reads."""
        if (owner := self._owner) is None:
            return await self.read(lambda session: work(self._count_events(session)))
        await self._reads.execute(check_store)
        return await work(owner)

    def _count_events(self, session: Session) -> Session:
        """Let the session that reads count the events of the other processes."""
        if self._stored_hub is not None:
            self._stored_hub.count_events(session.metrics)
        return session

    async def reload(self) -> ApiResponse:
        """Load the definitions of the project again, in the sessions of this process."""
        response = await self._reads.execute(lambda session: reload(session, ReloadRequest()))
        return response if self._owner is None else await reload(self._owner, ReloadRequest())

    async def _health(self, request: ApiRequest) -> HealthResponse:
        response = await self.read(lambda session: queries.health(session, EmptyRequest()))
        update: dict[str, Any] = {"store": "PostgresStore", "owner": await self.commands.owner()}
        if (owner := self._owner) is not None:
            update |= queries.live_health(owner, is_degraded=response.status != "ok")
        return response.model_copy(update=update)

    async def _send(
        self, operation: Operation, request: ApiRequest, patience: float | None = None
    ) -> ApiResponse:
        """Let the owner execute an operation; return its reply."""
        fields = request.model_dump(mode="json", exclude_unset=True)
        id, patience = uuid4().hex, patience or COMMAND_PATIENCE_S
        arguments = self._encode(json.dumps(fields), "command", id)
        caller = self._encode(json.dumps(asdict(request.caller)), "caller", id)
        try:
            await self.commands.send(SentCommand(id, operation.name, arguments, caller), patience)
            reply = json.loads(self._decode(await self._await_reply(operation, id), "reply", id))
            with contextlib.suppress(StoreError):  # an owner deletes it later
                await self.commands.delete(id)
        except StoreError as error:
            raise ApiError(
                "busy",
                f"{error} It is not known whether '{operation.name}' was executed",
                "Repeat it with the same idempotency key.",
            ) from error
        if "error" in reply:
            raise ApiError.from_dict(reply["error"])
        return operation.response_model.model_validate(reply["result"])

    async def _await_reply(self, operation: Operation, id: str) -> str:
        loop = asyncio.get_running_loop()
        unowned_since: float | None = None
        while True:
            news = self._reply_news
            state = await self.commands.state(id)
            if state is None:
                raise await self._not_executed_error(operation)
            if state.reply is not None:
                return state.reply
            unowned_since = None if state.is_owned else unowned_since or loop.time()
            if not state.is_begun and state.is_expired and await self.commands.withdraw(id):
                raise await self._not_executed_error(operation)
            if state.is_begun and unowned_since and loop.time() - unowned_since > COMMAND_PATIENCE_S:
                raise self._lost_owner_error(operation)
            await wait_for_event(news, POLL_INTERVAL_S)

    async def _not_executed_error(self, operation: Operation) -> NotExecuted:
        owner = await self.commands.owner() if self._engine is None else None
        if self._engine is not None:
            message = f"No server starts the runs of the triggers of session '{self.name}'"
            fix = "Start a server: nerve serve"
        elif owner is None:
            message = f"No process executes the runs of session '{self.name}'"
            fix = "Start a server: nerve serve"
        else:
            message = f"{owner} executes the runs, but has not taken the command in time"
            fix = "Check that process, then try again."
        return NotExecuted("busy", f"{message}: '{operation.name}' was not executed", fix)

    def _lost_owner_error(self, operation: Operation) -> ApiError:
        message = f"The process that executed '{operation.name}' has ended, and no other has taken over"
        return ApiError("busy", message, "Start a server, which completes it: nerve serve")

    def _encode(self, text: str, *place: object) -> str:
        return encode_with(self.session.codec, text, *place)

    def _decode(self, text: str, *place: object) -> str:
        return decode_with(self.session.codec, text, *place)


class CommandExecutor:
    """Executes the commands that other processes have sent to the owner."""

    def __init__(
        self,
        commands: PostgresCommands,
        session: Session,
        epoch: int,
        execute: ExecuteOperation,
        shared: SharedSession | None = None,
    ) -> None:
        self._commands, self._session, self._epoch, self._shared = commands, session, epoch, shared
        self._execute_operation = execute
        self._running: dict[str, asyncio.Task[None]] = {}
        self._has_changed = asyncio.Event()

    def wake(self) -> None:
        """Look for commands now."""
        self._has_changed.set()

    async def execute_until_cancelled(self) -> None:
        try:
            await self._clean_up()
            while True:
                self._has_changed.clear()
                try:
                    for command in await self._commands.begin(self._epoch, self._running):
                        self._start(command)
                except OwnershipLost:
                    return
                except StoreError as error:
                    log.warning("commands of other servers are late: %s", error)
                await wait_for_event(self._has_changed, POLL_INTERVAL_S)
        finally:
            if tasks := list(self._running.values()):
                await asyncio.wait(tasks, timeout=SHUTDOWN_GRACE_S)
            await cancel_tasks(*tasks)

    async def _clean_up(self) -> None:
        with contextlib.suppress(StoreError):
            await self._commands.delete_old()

    def _start(self, command: SentCommand) -> None:
        task = self._running[command.id] = asyncio.create_task(self._execute(command))
        task.add_done_callback(lambda _: self._running.pop(command.id, None))

    async def _execute(self, command: SentCommand) -> None:
        """Execute a command and store its reply; without a reply, the next owner executes it again."""
        try:
            reply = {"result": (await self._perform(command)).model_dump(mode="json")}
        except Exception as error:
            if self._session.engine.closed or isinstance(find_cause(error), OwnershipLost):
                return
            reply = {"error": to_api_error(error).to_dict()}
        text = encode_with(self._session.codec, json.dumps(reply), "reply", command.id)
        while True:
            try:
                await self._commands.reply(self._epoch, command.id, text)
                return
            except OwnershipLost:
                return
            except StoreError as error:
                log.warning("the reply to '%s' is late: %s", command.operation, error)
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _perform(self, command: SentCommand) -> ApiResponse:
        from nerve.api.chat_messages import RECEIVE_OPERATION, receive_chat
        from nerve.api.conversation import MESSAGE_OPERATION, execute_message

        codec = self._session.codec
        internal = {each.name: each for each in (MESSAGE_OPERATION, RECEIVE_OPERATION)}
        operation = {**OPERATIONS, **internal}.get(command.operation)
        if operation is None:
            raise ApiError(
                "not_found",
                f"The process that executes the runs does not know '{command.operation}'",
                "Update its Nerve.",
            )
        arguments = json.loads(decode_with(codec, command.arguments, "command", command.id))
        if (key := operation.request_model.key_field) and arguments.get(key) is None:
            arguments[key] = command.id
        request = parse_request(operation, arguments)
        request.set_caller(Caller(**json.loads(decode_with(codec, command.caller, "caller", command.id))))
        if operation is MESSAGE_OPERATION:
            return await execute_message(self._shared or self._session, request)
        if operation is RECEIVE_OPERATION:
            return await receive_chat(self._session, request)
        return await self._execute_operation(self._session, operation, request)


@contextlib.asynccontextmanager
async def execute_sent_commands(
    url: str, session: Session, epoch: int, execute: ExecuteOperation
) -> AsyncIterator[None]:
    """Execute what other processes send to this one, which owns the session, until the end of the context."""
    commands = PostgresCommands(url, session.name)
    executor = CommandExecutor(commands, session, epoch, execute)
    try:
        async with run_in_background(executor.execute_until_cancelled()):
            yield
    finally:
        await commands.close()


class SharedEventHub:
    """The streams of a shared session: read in its thread, used on the event loop of the server."""

    def __init__(self, reads: ReadingThread, get_hub: Callable[[], StoredEventHub | None]) -> None:
        self._reads, self._get_hub = reads, get_hub

    @property
    def _hub(self) -> StoredEventHub:
        hub = self._get_hub()
        assert hub is not None
        return hub

    def collect(self) -> list[Metric]:
        """Return the metrics of the streams."""
        return self._hub.collect()

    def cursor(self, number: int) -> str:
        """Return the position after the event with that number."""
        return self._hub.cursor(number)

    def watch(self, run_id: str | None = None, after: int = 0) -> AsyncGenerator[EventResponse, None]:
        """Yield events as `EventHub.watch` does."""
        return self._reads.iterate(lambda: self._hub.watch(run_id, after))

    def watch_run(self, run_id: str, after: int = 0) -> AsyncGenerator[list[EventFrame], None]:
        """Yield events as `EventHub.watch_run` does."""
        return self._reads.iterate(lambda: self._hub.watch_run(run_id, after))

    def watch_all(self, after: str = "") -> AsyncGenerator[tuple[str, EventResponse | None], None]:
        """Yield events as `EventHub.watch_all` does."""
        return self._reads.iterate(lambda: self._hub.watch_all(after))

    def watch_all_runs(self, after: str = "") -> AsyncGenerator[tuple[str, list[EventFrame] | None], None]:
        """Yield events as `EventHub.watch_all_runs` does."""
        return self._reads.iterate(lambda: self._hub.watch_all_runs(after))


async def check_store(session: Session) -> None:
    """Raise an error unless the store can be read."""
    session.engine.store.fact_version(session.name)


def find_cause(error: BaseException) -> BaseException:
    """Return the error that an API error was made of."""
    return error.__cause__ if isinstance(error, ApiError) and error.__cause__ is not None else error


def encode_with(codec: Codec | None, text: str, *place: object) -> str:
    return text if codec is None else encode_text(codec, text, *place)


def decode_with(codec: Codec | None, text: str, *place: object) -> str:
    return text if codec is None else decode_text(codec, text, *place)
