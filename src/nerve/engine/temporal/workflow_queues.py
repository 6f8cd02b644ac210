"""The queues of a session, as the runs of one workflow see them: a body worker adds and removes entries."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from nerve.core.queues import QueueRequest
from nerve.engine.queue_lane import QueueEntry, QueueLane
from nerve.engine.session_queues import SessionQueues
from nerve.engine.task_tracking import detached_context

if TYPE_CHECKING:
    from nerve.engine.temporal.outbox import Outbox


class WorkflowQueues(SessionQueues):
    """Sends entries with the outbox of the workflow; the command `slot` brings later slots."""

    answers_later = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.outbox: Outbox | None = None
        """Set before the first entry."""
        self._requests: dict[QueueEntry, tuple[asyncio.Future[bool], int]] = {}
        self._context = detached_context()

    def enter(
        self, run_id: str, path: str, request: QueueRequest, arrived_at: float | None = None
    ) -> QueueEntry:
        entry = super().enter(run_id, path, request, arrived_at)
        queue = self.declared.get(request.queue)
        if entry.is_waiting and entry not in self._requests and queue is not None:
            rate = queue.window
            limits = (None, None) if rate is None else (rate.limit, rate.seconds)
            assert self.outbox is not None
            answer, asked = self.outbox.send_entry(
                run_id, path, queue.name, request.key or "",
                request.priority, entry.arrived_at, queue.concurrency, *limits,
            )  # fmt: skip
            self._requests[entry] = answer, asked
            answer.add_done_callback(partial(self._on_answer, entry), context=self._context)
        return entry

    def _on_answer(self, entry: QueueEntry, answer: asyncio.Future[bool]) -> None:
        if answer.cancelled() or entry.has_left:
            return
        if answer.result():
            self._give_slot(entry)
        elif entry.on_granted is not None:
            entry.on_granted()

    def on_slot(self, run_id: str, path: str) -> None:
        """Continue a step, or a run, that has got its slot."""
        entry = self._entries.get(run_id, {}).get(path)
        if entry is not None:
            self._give_slot(entry)
        else:
            self._wake_run(run_id)

    def _give_slot(self, entry: QueueEntry) -> None:
        if not entry.is_waiting:
            return
        lane = self._lane_of(entry)
        lane.waiting_count -= 1
        lane.add_holder(entry)
        if entry.on_granted is not None:
            entry.on_granted()
        elif not entry.is_claimed:
            self._wake_run(entry.run_id)

    def leave(self, entry: QueueEntry) -> None:
        if entry.has_left:
            return
        super().leave(entry)
        if (request := self._requests.pop(entry, None)) is not None and self.outbox is not None:
            answer, asked = request
            answer.cancel()
            self.outbox.end_entry(entry.run_id, entry.path, asked)

    def _grant_soon(self, lane: QueueLane) -> None:
        """Leave it to the worker that removes an entry to grant its slot."""

    def _grant(self, lane: QueueLane) -> None:
        """Leave it to the workers."""
