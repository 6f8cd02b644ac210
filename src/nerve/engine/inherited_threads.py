"""Agent conversations that a fork inherits from the journal it was copied from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nerve.core.agent_threads import InheritedThread
from nerve.core.events import JournalRow
from nerve.journal.events import CallSettled, RequestAbandoned, RunStarted
from nerve.journal.index import RecordedEvent, read_events, read_start
from nerve.store.port import Store


class InheritedThreads:
    """Looks up the state of a conversation in the run it belongs to."""

    def __init__(self, store: Store, start: RunStarted, events: Sequence[RecordedEvent]) -> None:
        self._store, self._start = store, start
        self._inherited_counts: dict[str, int] = {}
        for thread, _ in find_threads(events[: start.copied_events]):
            self._inherited_counts[thread] = self._inherited_counts.get(thread, 0) + 1

    def __call__(self, thread: str) -> InheritedThread | None:
        if thread not in self._inherited_counts:
            return None
        totals_of_thread = [
            totals for other, totals in find_threads(self._original_rows()) if other == thread
        ]
        reported = [totals for totals in totals_of_thread if totals]
        return InheritedThread(
            # If the original has used the thread since, the fork must not continue it: the agent would see
            # both.
            reported[-1] if reported else {},
            len(totals_of_thread) > self._inherited_counts[thread],
        )

    def _original_rows(self) -> Sequence[JournalRow]:
        """Return the journal of the original run, which continues its conversations."""
        start, journal_rows = self._start, list[JournalRow]()
        while start.source_run is not None and (rows := self._store.events(start.source_run)):
            start, journal_rows = read_start(self._store, start.source_run), [*rows]
        return journal_rows


def find_threads(
    rows: Iterable[JournalRow | RecordedEvent],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the conversations in which steps ended, and the totals their providers reported."""
    for recorded in read_events(rows):
        event = recorded.event
        if not isinstance(event, CallSettled | RequestAbandoned) or not recorded.settles:
            continue
        if (thread := event.attribute("thread")) is not None:
            yield thread, event.attribute("totals") or {}
