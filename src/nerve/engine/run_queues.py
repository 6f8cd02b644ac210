"""The entries of one run in the queues of its session: those of its steps, and its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from weakref import proxy

from nerve.core.queues import Queue, QueueRequest, find_queue
from nerve.core.runtime import NodeCall
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.open_waits import OpenWaits
from nerve.engine.queue_lane import QueueEntry
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_journal import RunJournal
from nerve.engine.run_timers import RunTimers
from nerve.engine.session_queues import WAIT_SUFFIX, SessionQueues, step_of_wait
from nerve.errors import Suspended
from nerve.journal.events import QueueCancelled, QueueEntered, QueueWaiting
from nerve.journal.index import JournalIndex


class RunQueues:
    """Waits for slots outside the body: the body sees a step that takes longer, and nothing else."""

    def __init__(
        self,
        run: WorkflowRun,
        index: JournalIndex,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        waits: OpenWaits,
        timers: RunTimers,
        queues: SessionQueues,
        requests_around: Callable[[], Iterable[QueueRequest]],
    ) -> None:
        """`requests_around` returns what this run and those around it hold until they end."""
        self._run, self._journal, self._dispatcher, self._barrier = run, journal, dispatcher, barrier
        self._waits, self._timers, self._queues = waits, timers, queues
        self._requests_around = requests_around
        self._entries: dict[str, QueueEntry] = {}
        self._open_waits: dict[str, tuple[str, float | None]] = {}
        """The recorded waits that are open, by step: their paths, and when they began."""
        for path, recorded in index.unsettled.items():
            if isinstance(recorded.event, QueueWaiting):
                self._open_waits[step_of_wait(path)] = (path, recorded.at)
        barrier.pause_observer = proxy(self)

    # -- what a call or a run asks for -----------------------------------------------------------

    def request_of_call(self, call: NodeCall) -> QueueRequest:
        """Return what a step or a child run asks of its queue; ValueError if it cannot have it."""
        assert call.policy.queue is not None
        queue = find_queue(self._queues.declared, call.policy.queue)
        owner, sources = f"step '{call.node_id}'", [call.input, self._run.run_state.tags]
        if isinstance(call.node, Workflow):
            owner, sources = f"workflow '{call.node_id}'", [*call.node.queue_values(call.input), *sources]
        request = queue.make_request(owner, [*sources, call.params])
        self._check_not_held(queue, request, owner)
        return request

    def _check_not_held(self, queue: Queue, request: QueueRequest, owner: str) -> None:
        """Raise ValueError for a slot that only the end of this run, or of one around it, could free."""
        held = (around[:2] for around in self._requests_around())
        if queue.concurrency is not None and request[:2] in held:
            raise ValueError(
                f"Run '{self._run.run_id}' is in queue '{queue.name}' until it ends, so {owner} cannot wait"
                " for the same queue. Use another queue for it."
            )

    # -- entering and leaving --------------------------------------------------------------------

    def holds(self, path: str) -> bool:
        return path in self._entries

    async def enter_run(self, request: QueueRequest) -> None:
        """Return when the run has its slot, before its body starts."""
        self._dispatcher.is_held_back = True
        try:
            await self._enter("", request)
        finally:
            self._dispatcher.is_held_back = False

    async def enter_step(self, path: str, request: QueueRequest) -> None:
        """Return when a step that has not started has its slot; the caller records the start at once."""
        await self._enter(path, request)

    async def enter_attempt(self, call: NodeCall) -> None:
        """Return when a step that has started has a slot for its next attempt, and that is on disk."""
        path, request, last_seq = call.path, self.request_of_call(call), self._journal.seq
        entry = await self._enter(path, request, is_started=True)
        if not entry.is_recorded:
            self._record_slot(entry)
            if self._journal.seq == last_seq:
                self._journal.append(QueueEntered(request.queue, request.key), path + WAIT_SUFFIX)
            await self._journal.wait_durable(self._journal.seq)

    def leave(self, path: str) -> None:
        """Give a slot back; the store hears of it with the next event, which says how the step ended."""
        entry = self._entries.pop(path, None)
        if entry is None:
            return
        # A step that is interrupted keeps its slot in the store: recovery returns it to the step.
        if entry.is_recorded and not self._barrier.is_inactive:
            self._journal.attach_waits([self._queues.release_row(entry)])
        self._queues.leave(entry)

    async def _enter(self, path: str, request: QueueRequest, is_started: bool = False) -> QueueEntry:
        entry = self._request_slot(path, request)
        if not entry.is_granted:
            with self._timers.paused(path):
                entry = await self._wait_for_slot(entry, is_started)
        if path in self._open_waits:
            wait_path, _ = self._open_waits.pop(path)
            settles = self._journal.settle_key(wait_path)
            self._journal.append(QueueEntered(request.queue, request.key), wait_path, settles)
        if not is_started:
            self._record_slot(entry)
        return entry

    def _request_slot(self, path: str, request: QueueRequest) -> QueueEntry:
        _, arrived_at = self._open_waits.get(path, ("", None))
        entry = self._entries[path] = self._queues.enter(self._run.run_id, path, request, arrived_at)
        return entry

    def _record_slot(self, entry: QueueEntry) -> None:
        """Store who has the slot with the next event of the run, unless the store knows."""
        if not entry.is_recorded:
            entry.is_recorded = True
            self._journal.attach_waits(self._queues.rows_of(entry))

    async def _wait_for_slot(self, entry: QueueEntry, is_started: bool) -> QueueEntry:
        """Return the entry when it has a slot and the run may start work; a pause removes it meanwhile."""
        path, request, barrier = entry.path, entry.request, self._barrier
        try:
            if self._queues.answers_later:
                await self._wait_for_notice(entry, is_started)
                if entry.is_granted and not barrier.is_paused:
                    return entry
            wait_path = self._record_waiting(path, request)
            while not entry.is_granted or barrier.is_paused:
                if barrier.is_paused or entry.has_left:
                    self._queues.leave(entry)
                    await barrier.wait_until_resumed()
                    barrier.raise_if_cancelled()
                    entry = self._request_slot(path, request)
                else:
                    await self._wait_for_grant(entry, wait_path, is_started)
        except Suspended:
            # Out of memory, it keeps its turn; a run that is held has left the queue already.
            entry.is_claimed, entry.on_granted = False, None
            del self._entries[path]
            raise
        except asyncio.CancelledError:
            del self._entries[path]
            self._queues.leave(entry)
            if path in self._open_waits and not barrier.is_cancelled_by_engine():
                self._record_cancelled(path)
            raise
        return entry

    async def _wait_for_grant(self, entry: QueueEntry, wait_path: str, is_started: bool) -> None:
        """Return when the entry has a slot, or has left the queue."""
        future = self._make_notice(entry, is_started)
        self._waits.add_queue_wait(wait_path, future)
        try:
            await (future if is_started else self._dispatcher.wait_for(future))
        finally:
            if not self._barrier.is_detached:
                self._waits.remove_queue_wait(wait_path)

    async def _wait_for_notice(self, entry: QueueEntry, is_started: bool) -> None:
        """Return when it is known whether the entry has a slot."""
        future = self._make_notice(entry, is_started)
        await (future if is_started else self._dispatcher.wait_for(future))

    def _make_notice(self, entry: QueueEntry, is_started: bool) -> asyncio.Future[Any]:
        """Return what completes with the next news of an entry."""
        # A step that has started must not leave memory: without a recorded outcome, it would be in doubt.
        dispatcher = self._dispatcher
        future = asyncio.get_running_loop().create_future() if is_started else dispatcher.create_future()

        def on_granted() -> None:
            if not is_started:
                dispatcher.deliver_at_rest(future)
            elif not future.done():
                future.set_result(None)

        entry.on_granted = on_granted
        return future

    def _record_waiting(self, path: str, request: QueueRequest) -> str:
        """Record that a step waits, unless the journal says so; return the path of the wait."""
        if path in self._open_waits:
            return self._open_waits[path][0]
        wait_path = self._journal.unused_path(path + WAIT_SUFFIX, ())
        # In the order of arrival, also after a restart: the time of the event counts then.
        self._open_waits[path] = (wait_path, self._entries[path].arrived_at)
        event = QueueWaiting(request.queue, request.key, request.priority)
        self._journal.append(event, wait_path, urgent=True)
        return wait_path

    def _record_cancelled(self, path: str) -> None:
        """Record that the body has abandoned a step that waits."""
        wait_path, _ = self._open_waits.pop(path)
        self._journal.append(QueueCancelled(), wait_path, self._journal.settle_key(wait_path))

    def on_pause(self) -> None:
        """Leave the queues in which steps wait: the run starts no work until it is resumed."""
        for entry in list(self._entries.values()):
            if entry.is_waiting:
                self._queues.leave(entry)
                if entry.on_granted is not None:
                    entry.on_granted()
