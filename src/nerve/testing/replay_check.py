"""assert_replays: run the code of a workflow against the journal of a run."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, cast

from nerve.core.json_codec import encode_json
from nerve.core.json_diagnostics import truncate_error_text
from nerve.core.nodes.fact_nodes import FactChanges
from nerve.core.nodes.folder_users import FolderUsers
from nerve.core.nodes.in_memory_runtime import current_home
from nerve.core.queues import Queue
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.engine.child_runner import ChildRunOperations
from nerve.engine.child_runs import has_asked_person
from nerve.engine.engine_host import PROCESS_HOST
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.local_engine import LocalEngine
from nerve.engine.recorded_history import MISMATCH_HINT
from nerve.engine.result_dispatcher import REPLAY_TIMEOUT_S
from nerve.engine.run_budget import SessionBudgets
from nerve.engine.run_executor import ExecutorServices, RunExecutor
from nerve.engine.session_queues import SessionQueues
from nerve.errors import ContinuedAsNew
from nerve.journal.events import (
    ChildStopped,
    RequestAbandoned,
    RunCancelled,
    RunCompleted,
    RunEnd,
    RunFailed,
    RunOnHold,
)
from nerve.journal.index import (
    RecordedEvent,
    StoredJournal,
    is_ended_with_run,
    is_stopped,
    read_events,
    read_start,
)
from nerve.journal.replay import Replay, ReplayEntry
from nerve.session.session import Session
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, RunRow, Store
from nerve.testing.virtual_clock import VirtualClock

FORCED_ERROR_TYPE = "LimitReached"
"""The error of a run that the engine ended, wherever its body was."""


async def assert_replays(run: WorkflowRun, *, timeout: float = REPLAY_TIMEOUT_S) -> None:
    """Raise AssertionError if the current code of a run does not do what the journal of the run says.

    The workflow function runs again from its start, as after a restart, and gets its results from the
    journal. The error names the path, what the journal has, and what the code does now. The run may have
    ended, failed or be waiting; nothing is executed or written. `timeout` is the time that the function may
    spend on its own, waiting for anything else than its context.
    """
    session = cast("Session", run.workflow.session)
    engine = session.engine
    engine.bind_to_running_loop()
    await engine.wait_durable(run)
    events = read_events(engine.store.events(run.run_id))
    if not events:
        raise ValueError(f"Run '{run.run_id}' is not in the store of its session")
    workflow = session.find_startable(run.workflow_id)
    if workflow is None:
        raise AssertionError(f"Run '{run.run_id}' does not replay: workflow '{run.workflow_id}' not found")
    body_events, end = split_end(events)
    stored = StoredJournal(body_events)
    start = stored.index.start
    checked = WorkflowRun(workflow, start.input, start.params, run_id=run.run_id, about=start.metadata)
    with stopped_clock(engine):
        difference = await ReplayCheck(engine, session, checked, stored, end, timeout).find_difference()
    if difference is not None:
        raise AssertionError(f"Run '{run.run_id}' does not replay: {difference}")


def split_end(events: list[RecordedEvent]) -> tuple[list[RecordedEvent], RunEnd | None]:
    """Return what a body has to repeat, and how it ended; None if it has not, or the engine ended it."""
    last = events[-1].event
    if not isinstance(last, RunEnd):
        return events, None
    events = events[:-1]
    if isinstance(last, RunCancelled) and last.error_type is None:
        # The stop of a run ends what was open, and then writes what the cancelled body has emitted.
        is_open_until = (number for number, row in enumerate(events) if is_ended_with_run(row))
        events = events[: next(is_open_until, len(events))]
        while isinstance(events[-1].event, RequestAbandoned | ChildStopped) and not is_stopped(events[-1]):
            events.pop()
        return events, None
    is_forced = isinstance(last, RunFailed) and last.error_type == FORCED_ERROR_TYPE
    return events, None if is_forced else last


@contextmanager
def stopped_clock(engine: LocalEngine) -> Iterator[None]:
    """Keep a virtual clock from jumping: the check is not known to the engine."""
    clock = engine.clock
    if not isinstance(clock, VirtualClock) or not clock.skip:
        yield
        return
    clock.skip = False
    try:
        yield
    finally:
        clock.skip = True


class ReplayCheck(RunExecutor):
    """The executor of a body that never goes beyond its journal."""

    def __init__(
        self,
        engine: LocalEngine,
        session: Session,
        run: WorkflowRun,
        stored: StoredJournal,
        end: RunEnd | None,
        timeout: float,
    ) -> None:
        super().__init__(make_services(engine, session), run, stored.index.start, stored)
        self._recorded_end, self._timeout = end, timeout
        self._difference: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        dispatcher = self.dispatcher
        dispatcher.replay_timeout = timeout
        if dispatcher.replay is None:
            # Also at the end of the journal: without a replay the body would be live.
            dispatcher.replay = dispatcher.history = Replay(
                stored.events[1:], stored.index.optional_until, self.start.origin_ids
            )

    async def find_difference(self) -> str | None:
        """Return where the code differs from the journal; None if it does not."""
        self.start_body()
        assert self.main_task is not None
        self.main_task.add_done_callback(self._on_body_ended)
        try:
            return await self._difference
        finally:
            self.suspend()
            await self.cancel_tasks()

    def _report(self, difference: str | None) -> None:
        if not self._difference.done():
            self._difference.set_result(difference)

    def hold(self, hold: RunOnHold) -> None:
        self._report(hold.message.removesuffix(MISMATCH_HINT).rstrip(" ."))
        self.suspend()

    def copy_facts(self, request: ReplayEntry, changes: FactChanges) -> None:
        """Change no facts."""

    def prepare_to_go_live(self) -> bool:
        """Report that the body has repeated everything, and keep it there."""
        end = self._recorded_end
        if end is None:
            self._report(None)
        elif requested := self._history.newly_requested_paths:
            self._report(f"{describe_end(end)}, the code now requests {', '.join(requested)}")
        else:
            # The body may wait for something of its own before it ends.
            self._loop.call_later(
                self._timeout, self._report, f"{describe_end(end)}, the code now does not end"
            )
        return False

    async def _end_run(
        self,
        end: RunEnd,
        status: WorkflowState,
        result: Any = None,
        error: BaseException | None = None,
        continuation: ContinuedAsNew | None = None,
    ) -> None:
        if self.barrier.is_stopping or self.barrier.is_inactive:
            return
        recorded = self._recorded_end
        if (obstacle := self._history.find_unrequested_record()) is not None:
            self._history.hold_for_mismatch(obstacle, f"the code now {describe_outcome(end)}")
        elif recorded is None or outcome_key(recorded) == outcome_key(end):
            self._report(None if continuation is None else self._compare_next_run(continuation))
        else:
            self._report(f"{describe_end(recorded)}, the code now {describe_outcome(end)}")

    def _compare_next_run(self, continuation: ContinuedAsNew) -> str | None:
        """Return the difference to the start of the next run of the chain; None if there is none."""
        end = self._recorded_end
        next_id = end.continued_as if isinstance(end, RunCompleted) else None
        if next_id is None or self._services.store.run(next_id) is None:
            return None
        start = read_start(self._services.store, next_id)
        if (start.input, start.params) == (continuation.input, continuation.params):
            return None
        recorded, found = (encode_json(value) for value in (start.input, continuation.input))
        return f"/: the run continues as new with {recorded} in the journal, the code now with {found}"

    def _on_body_ended(self, task: asyncio.Task[None]) -> None:
        """Compare where a body ended that was stopped in the recorded run."""
        if self._difference.done():
            return
        if (obstacle := self._history.find_unrequested_record()) is not None:
            self._history.hold_for_mismatch(obstacle, "the code now ends")
        else:
            self._report(None)


def outcome_key(end: RunEnd) -> tuple[Any, ...]:
    """Return what must be the same in the end of a run."""
    match end:
        case RunCompleted():
            return (end.type, end.result, end.continued_as)
        case RunFailed():
            return (end.type, end.error_type, end.error)
        case RunCancelled():
            return (end.type, end.error_type, end.reason)
    return (end.type,)


def describe_end(end: RunEnd) -> str:
    return f"/: the run {describe_outcome(end)} in the journal"


def describe_outcome(end: RunEnd) -> str:
    """Return how a run ended, as a part of a sentence."""
    match end:
        case RunCompleted() if end.continued_as is not None:
            return "continues as new"
        case RunCompleted():
            return f"returns {truncate_error_text(end.result_json)}"
        case RunFailed():
            return f"raises {end.error_type}: {end.error}"
        case RunCancelled():
            return f"is cancelled: {end.reason}"
    return f"ends with {end.type}"


# -- an engine that does nothing -------------------------------------------------------------------


class DiscardingStore:
    """A store that reads from another one and writes nothing."""

    durable = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, batch: Sequence[Append], timeout: float = 0.0) -> list[None]:
        return [None] * len(batch)


def make_services(engine: LocalEngine, session: Session) -> ExecutorServices:
    """Return the services of an executor that reads the runs of an engine and changes nothing."""
    store = cast("Store", DiscardingStore(engine.store))

    def handle(row: RunRow) -> WorkflowRun:
        child = copy.copy(engine.run_handle(row))
        child._operations = replace(child._operations, stop=stop_nothing)
        return child

    return ExecutorServices(
        store=store,
        clock=VirtualClock(skip=False),
        committer=GroupCommitter(store),
        budgets=SessionBudgets(store, session.name, None, do_nothing),
        queues=SessionQueues(
            MemoryStore(),
            session.name,
            # Replay waits for nothing: what is recorded has had its slot.
            lambda: {name: Queue(name, per=queue.per) for name, queue in session.queues.items()},
            refuse,
            lambda: False,
            lambda _: None,
        ),
        folder_users=FolderUsers(),
        requests_around=lambda _: (),
        children=ChildRunOperations(
            store=store,
            start=refuse,
            resume=handle,
            handle=handle,
            usage_of_stopped_runs=engine.usage_of_stopped_runs,
            stop_open_children=do_nothing,
            schedule_stop=lambda *_: None,
            is_queued=lambda _: False,
        ),
        get_facts=refuse,
        home=current_home(),
        has_asked_person=partial(has_asked_person, store),
        is_shutting_down=lambda: False,
        count_active_runs=lambda: 0,
        replace_leaf=None,
        host=PROCESS_HOST,
        make_run_row=engine.run_row,
        publish=lambda *_: None,
        on_idle=lambda _: None,
        on_released=lambda _: None,
        begin_next_run=refuse,
        start_next_run=refuse,
        finish_stop=lambda *_: None,
        stop_run=stop_nothing,
    )


async def do_nothing(*_: Any, **__: Any) -> None:
    pass


async def stop_nothing(*_: Any) -> list[str]:
    return []


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("A replay check does not execute anything")
