"""Events a body emits, tags it sets, and the clock, random numbers, ids and patches it reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any, Protocol

from nerve.core.clock import Clock, utc_now
from nerve.core.events import WorkflowEventType, is_reserved_event
from nerve.core.tags import require_few_tags
from nerve.core.workflow.run import RunState
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.recorded_history import RecordedHistory
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_journal import RunJournal
from nerve.journal.events import (
    ClockRead,
    EmittedEvent,
    Event,
    PatchEvaluated,
    RunStarted,
    TagsChanged,
    UpdateCompleted,
)
from nerve.journal.index import JournalIndex
from nerve.journal.replay import ReplayEntry

ITERATION_EVENTS = (WorkflowEventType.LOOP_ITERATION, WorkflowEventType.STATE_ENTERED)
"""Events that count as an iteration."""


class IterationCounter(Protocol):
    """The run, whose iterations may be limited."""

    def count_iteration(self, path: str) -> None: ...


class SideEffects:
    """Side effects, counted by path and type like calls; recorded ones are not written or shown again."""

    def __init__(
        self,
        start: RunStarted,
        index: JournalIndex,
        state: RunState,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        history: RecordedHistory,
        owner: IterationCounter,
        clock: Clock,
    ) -> None:
        self._seed, self._state, self._journal, self._dispatcher = start.seed, state, journal, dispatcher
        self._barrier, self._history, self._owner = barrier, history, owner
        self._clock = clock
        self._counts: dict[tuple[str, str], int] = {}
        self._deferred_events: list[tuple[Event, str]] = []
        self._patches = dict(index.patches)
        self._tags_of_body = dict(start.tags or {})
        """The tags as the body has set them so far; on replay, the run may have later ones already."""
        recorded = [(seq > index.optional_until, change.encode()) for seq, change in index.tag_changes]
        self._recorded_changes = [change for is_own, change in recorded if is_own]
        self._copied_changes = [change for is_own, change in recorded if not is_own]

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        if self._barrier.is_inactive:
            return
        if is_reserved_event(type):
            raise ValueError(f"Event type '{type}' is reserved for the engine. Use another name.")
        event = EmittedEvent(type, data)
        if self._lookup_recorded(path, type) is not None:
            # The recorded event was the next in order, so outcomes after it may now be deliverable.
            self._dispatcher.dispatch()
            return
        self._write_or_defer(event, path)
        if type in ITERATION_EVENTS:
            self._owner.count_iteration(path)

    def complete_update(self, reply: UpdateCompleted) -> None:
        """Record the reply to an update, unless an earlier process did."""
        if self._barrier.is_inactive:
            return
        if self._lookup_recorded("", reply.type) is not None:
            self._dispatcher.dispatch()
        else:
            self._write_or_defer(reply, "")

    def now(self, path: str) -> datetime:
        if self._barrier.is_inactive:
            return utc_now(self._clock)
        record = self._lookup_recorded(path, ClockRead.type)
        if record is not None and isinstance(record.event, ClockRead):
            self._dispatcher.dispatch()
            return datetime.fromisoformat(record.event.now)
        now = utc_now(self._clock)
        self._write_or_defer(ClockRead(now.isoformat()), path)
        return now

    def set_tags(self, tags: Mapping[str, str]) -> None:
        if self._barrier.is_inactive:
            return
        changed = {name: value for name, value in tags.items() if self._tags_of_body.get(name) != value}
        if not changed:
            return
        self._tags_of_body = require_few_tags(self._tags_of_body | changed)
        if self._take_recorded_change(TagsChanged(changed).encode()):
            return
        if not changed.items() <= self._state.tags.items():
            self._state.tags = {**self._state.tags, **changed}
            self._write_or_defer(TagsChanged(changed), "")

    def _take_recorded_change(self, change: str) -> bool:
        """Return whether the journal has a change of tags that the body makes again."""
        # By content and not by order, so that a line that sets a tag can be added and removed. A fork has
        # the tags of all of its source, so in its new part the body sets them again.
        is_replaying = self._dispatcher.replay is not None
        for changes in (self._recorded_changes, *((self._copied_changes,) if is_replaying else ())):
            if change in changes:
                changes.remove(change)
                return True
        return False

    def is_patched(self, name: str) -> bool:
        if (active := self._patches.get(name)) is not None:
            return active
        replay = self._dispatcher.replay
        # A later request shows that the run has passed this place with code that did not have the patch.
        active = self._patches[name] = replay is None or not replay.has_later_request
        if not self._barrier.is_inactive:
            self._write_or_defer(PatchEvaluated(name, active), "")
        return active

    def random(self, path: str) -> float:
        return self._random_source(path).random()

    def new_id(self, path: str) -> str:
        from uuid import UUID  # imported here: it takes milliseconds, and few runs need it

        return str(UUID(int=self._random_source(path).getrandbits(128), version=4))

    def _random_source(self, path: str) -> Random:
        # Seeded by run and path, so nothing is recorded: replay computes the same value, whatever the order
        # of calls.
        return Random(f"{self._seed}{path}")

    def _lookup_recorded(self, path: str, type: str) -> ReplayEntry | None:
        count = self._counts[(path, type)] = self._counts.get((path, type), 0) + 1
        return self._history.lookup_emit(path, type, count)

    def _write_or_defer(self, event: Event, path: str) -> None:
        """Write an event, or keep it until replay is known to match, or the cleanup of the body begins."""
        # If replay ends in a mismatch the run is held, and events of the changed code must not be in the
        # journal. In a body that was cancelled they come after the event that says so.
        if self._dispatcher.replay is not None or self._barrier.has_no_place_in_journal():
            self._deferred_events.append((event.copy() if isinstance(event, EmittedEvent) else event, path))
        else:
            self._write(event, path)

    def _write(self, event: Event, path: str) -> None:
        seq = self._journal.append(event, path)
        if isinstance(event, UpdateCompleted):
            # The caller of the update waits for the reply.
            self._journal.wait_durable(seq).add_done_callback(lambda _: self._state.notify_watchers())

    def flush_deferred(self) -> None:
        """Write the events emitted during replay that the journal does not have."""
        for event, path in self._deferred_events:
            self._write(event, path)
        self._deferred_events.clear()
