"""Events a body emits, and the deterministic clock, random numbers and ids it reads."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from nerve.core.events import is_reserved_event
from nerve.core.json_codec import MAX_EVENT_DEPTH, encode_json
from nerve.journal.replay import ReplayEntry

if TYPE_CHECKING:
    from nerve.engine.run_executor import RunExecutor

ITERATION_EVENTS = ("loop_iteration", "state_entered")
"""Events that count as an iteration."""


class SideEffects:
    """Side effects, counted by path and type like calls; recorded ones are not written or shown again."""

    def __init__(self, executor: RunExecutor) -> None:
        self._executor = executor
        self._counts: dict[tuple[str, str], int] = {}
        self._deferred_events: list[tuple[str, str, str]] = []
        self._clock_read_seq = 0

    @property
    def has_unwritten_clock_reading(self) -> bool:
        """Whether the body has read a time that is not on disk; after a crash it would read another one."""
        return self._clock_read_seq > self._executor.journal.committed_seq

    def emit(self, path: str, type: str, data: dict[str, Any]) -> None:
        executor = self._executor
        if executor.is_inactive:
            return
        if is_reserved_event(type):
            raise ValueError(f"Event type '{type}' is reserved for the engine. Use another name.")
        text = encode_json(data, max_depth=MAX_EVENT_DEPTH)
        if self._lookup_recorded(path, type) is not None:
            # The recorded event was the next in order, so outcomes after it may now be deliverable.
            executor.dispatcher.dispatch()
            return
        self._write_or_defer(type, path, text)
        if type in ITERATION_EVENTS:
            executor.usage.iterations += 1
            executor.check_limits(path)

    def now(self, path: str) -> datetime:
        if self._executor.is_inactive:
            return datetime.now(UTC)
        record = self._lookup_recorded(path, "clock_read")
        if record is not None:
            self._executor.dispatcher.dispatch()
            return datetime.fromisoformat(record.data["now"])
        now = datetime.now(UTC)
        self._write_or_defer("clock_read", path, encode_json({"now": now.isoformat()}))
        return now

    def random(self, path: str) -> float:
        return self._random_source(path).random()

    def new_id(self, path: str) -> str:
        from uuid import UUID  # imported here: it takes milliseconds, and few runs need it

        return str(UUID(int=self._random_source(path).getrandbits(128), version=4))

    def _random_source(self, path: str) -> Random:
        # Seeded by run and path, so nothing is recorded: replay computes the same value, whatever the order
        # of calls.
        return Random(f"{self._executor.start_data.get('seed')}{path}")

    def _lookup_recorded(self, path: str, type: str) -> ReplayEntry | None:
        count = self._counts[(path, type)] = self._counts.get((path, type), 0) + 1
        delivery = self._executor.dispatcher
        source = delivery.replay or delivery.optional_replay
        return source.lookup_emit((path, type, count)) if source is not None else None

    def _write_or_defer(self, type: str, path: str, text: str) -> None:
        """Write an event, or keep it until replay is known to match."""
        # If replay ends in a mismatch the run is held, and events of the changed code must not be in the
        # journal.
        if self._executor.dispatcher.replay is not None:
            self._deferred_events.append((type, path, text))
        else:
            self._write(type, path, text)

    def flush_deferred(self) -> None:
        """Write the events emitted during replay that the journal does not have."""
        for type, path, text in self._deferred_events:
            self._write(type, path, text)
        self._deferred_events.clear()

    def _write(self, type: str, path: str, text: str) -> None:
        seq = self._executor.journal.append(type, path, text, urgent=False)
        if type == "clock_read":
            self._clock_read_seq = seq
