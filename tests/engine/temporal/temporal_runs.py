"""Runs in Temporal as tests start, watch and command them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from engine.temporal.memory_projection import MemoryProjection
from nerve import Session
from nerve.core.limits import Limits
from nerve.engine.run_executor import outcome_of_run
from nerve.engine.temporal.body_worker import run_body_worker
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import (
    COMMAND_UPDATE,
    WORKFLOW_TYPE,
    RunCommand,
    RunCommandReply,
    RunInput,
    body_queue,
    leaf_queue,
)
from nerve.engine.temporal.payloads import PayloadStore, make_data_converter
from nerve.errors import WorkflowFailed
from nerve.journal.events import RunStarted, decode_event
from nerve.session.temporal_api import use_cluster_engine
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, Definition, EventRow, RunRow, Store, WaitRow

DEADLINE_S = 180.0
POLL_S = 0.02


class CommandRefused(Exception):
    """A workflow refused a command."""


class TemporalRuns:
    """Starts runs of a session in a namespace."""

    interrupt_leaves: Callable[[], None]
    """Ends the running leaves as a worker does that cannot reach Temporal."""
    stop_worker: Callable[[str], Awaitable[None]]
    """Stops the leaf worker of a host, if there are several."""

    def __init__(self, client: Client, session: Session, projection: Any, store: Store) -> None:
        """`store` reads what the projection writes."""
        self.client, self.session, self.projection, self.store = client, session, projection, store

    async def start(
        self,
        name: str,
        input: Any = None,
        *,
        run_id: str | None = None,
        params: dict[str, Any] | None = None,
        history_events: int = 8000,
        place: str | None = None,
    ) -> TemporalRun:
        run_id = run_id or str(uuid4())
        part = first_part(self.session, run_id, name, input, params or {}, place)
        return await self.start_from([part], run_id, history_events=history_events)

    async def start_from(
        self, journal: Sequence[Append], run_id: str, *, host: str | None = None, history_events: int = 8000
    ) -> TemporalRun:
        """Start a run that begins with a journal, and with its files on a host."""
        given = RunInput(self.session.name, run_id, journal, host=host, history_events=history_events)
        handle = await self.client.start_workflow(
            WORKFLOW_TYPE, given.to_data(), id=run_id, task_queue=body_queue(self.session.name)
        )
        return TemporalRun(run_id, handle, self.store, self.client)


class TemporalRun:
    """One run, seen through its workflow and the projection."""

    def __init__(self, run_id: str, handle: WorkflowHandle[Any, Any], store: Store, client: Client) -> None:
        self.run_id, self.handle, self.store, self.client = run_id, handle, store, client

    @property
    def rows(self) -> list[EventRow]:
        return self.store.events(self.run_id)

    @property
    def types(self) -> list[str]:
        return [row.type for row in self.rows]

    @property
    def state(self) -> str:
        row = self.store.run(self.run_id)
        return "pending" if row is None else row.state

    def family_of(self, run_id: str) -> TemporalRun:
        """Return another run of the family."""
        return TemporalRun(run_id, self.handle, self.store, self.client)

    async def command(self, verb: str, **arguments: Any) -> Any:
        command = RunCommand(verb, self.run_id, arguments)
        data = await self.handle.execute_update(COMMAND_UPDATE, command.to_data())
        reply = RunCommandReply.from_data(data)
        if reply.error is not None:
            raise CommandRefused(f"{reply.error_type}: {reply.error}")
        return reply.value

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Return what a condition returns as soon as it is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run is {self.state}: {self.types}")
            await asyncio.sleep(POLL_S)
        return found

    async def until_histories(self, count: int) -> None:
        """Return when the run has continued in new histories."""
        deadline = time.monotonic() + DEADLINE_S
        while await self.count_histories() < count:
            assert time.monotonic() < deadline
            await asyncio.sleep(POLL_S)

    async def count_histories(self) -> int:
        return len([each async for each in self.client.list_workflows(f'WorkflowId="{self.run_id}"')])

    async def next_wait(self, kind: str = "gate") -> WaitRow:
        waits = await self.until(
            lambda: [wait for wait in self.store.waits_of_run(self.run_id) if wait.kind == kind]
        )
        return waits[0]  # type: ignore[no-any-return]

    async def wait(self) -> Any:
        """Return the value of the run; raise WorkflowFailed or CancelledError."""
        try:
            data = await asyncio.wait_for(self.handle.result(), DEADLINE_S)
        except WorkflowFailureError as error:
            end = outcome_of_run(decode_event(self.rows[-1]))
            raise WorkflowFailed(self.run_id, end.error or "", end.error_type) from error
        last = self.store.events(data["run_id"])[-1]
        if data["state"] == "cancelled":
            raise asyncio.CancelledError(outcome_of_run(decode_event(last)).error)
        return outcome_of_run(decode_event(last)).result


def first_part(
    session: Session, run_id: str, name: str, input: Any, params: dict[str, Any], place: str | None = None
) -> Append:
    """Return the journal of a run that has just been started."""
    workflow = session.find_startable(name)
    assert workflow is not None
    hash, source, canonical = workflow.definition()
    limits = Limits.of(workflow.limits).to_dict()
    start = RunStarted(
        run_id, workflow.name, workflow.steps, input, params, session.name, hash, run_id, limits, place=place
    )
    at = time.time()
    return Append(
        run_id,
        0,
        [EventRow(1, at, "workflow_started", "", None, start.encode())],
        RunRow(run_id, session.name, workflow.name, "running", at, definition=hash),
        Definition(hash, workflow.name, workflow.kind, source, canonical),
    )


async def connect(url: str, projection: PayloadStore) -> Client:
    address, _, namespace = url.removeprefix("temporal://").partition("/")
    return await Client.connect(address, namespace=namespace, data_converter=make_data_converter(projection))


@asynccontextmanager
async def open_runs(
    url: str,
    session: Session,
    max_cached_workflows: int = 100,
    leaf_session: Session | None = None,
    database: tuple[Any, Store] | None = None,
) -> AsyncIterator[TemporalRuns]:
    """Start a body worker and a leaf worker of a session in this process.

    With a `leaf_session`, the leaves use its nodes, as they do on another machine. `database` is a projection
    and a store that reads it; without them, the rows are in memory.
    """
    in_memory = MemoryProjection(session.name)
    projection, store = database or (in_memory, in_memory.store)
    client = await connect(url, projection)
    use_cluster_engine(session, store, client, projection)
    executor = LeafExecutor(leaf_session or session, client, projection, store)
    providers = [leaf_queue(session.name, provider) for provider in session.providers]
    leaf_worker = LeafWorker(client, executor, [leaf_queue(session.name), *providers])
    async with (
        run_body_worker(client, session, MemoryStore, projection, max_cached_workflows),
        leaf_worker.running(),
    ):
        runs = TemporalRuns(client, session, projection, store)
        runs.interrupt_leaves = lambda: executor.interrupt_all("the test says so")
        yield runs
