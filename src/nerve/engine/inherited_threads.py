"""Agent conversations that a fork inherits from the journal it was copied from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nerve.core.agent_threads import InheritedThread
from nerve.core.json_codec import decode_json
from nerve.journal.events import copied_event_count
from nerve.store.port import EventRow, Store


class InheritedThreads:
    """Looks up the state of a conversation in the run it belongs to."""

    def __init__(self, store: Store, start: Mapping[str, Any], rows: Sequence[EventRow]) -> None:
        self._store, self._start_data = store, start
        self._inherited_counts: dict[str, int] = {}
        for thread, _ in threads_in_rows(rows[: copied_event_count(start)]):
            self._inherited_counts[thread] = self._inherited_counts.get(thread, 0) + 1

    def __call__(self, thread: str) -> InheritedThread | None:
        if thread not in self._inherited_counts:
            return None
        totals_of_thread = [
            totals for other, totals in threads_in_rows(self._original_rows()) if other == thread
        ]
        reported = [totals for totals in totals_of_thread if totals]
        return InheritedThread(
            # If the original has used the thread since, the fork must not continue it: the agent would see
            # both.
            reported[-1] if reported else {},
            len(totals_of_thread) > self._inherited_counts[thread],
        )

    def _original_rows(self) -> list[EventRow]:
        """Return the journal of the original run, which continues its conversations."""
        start, journal_rows = self._start_data, list[EventRow]()
        while "forked_from" in start and (rows := self._store.events(start["forked_from"]["run"])):
            start, journal_rows = decode_json(rows[0].data), rows
        return journal_rows


def threads_in_rows(rows: Iterable[EventRow]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the conversations in which steps ended, and the totals their providers reported."""
    for row in rows:
        if row.settles and '"thread"' in row.data:
            attributes = (decode_json(row.data).get("result") or {}).get("attributes") or {}
            if (thread := attributes.get("thread")) is not None:
                yield thread, attributes.get("totals") or {}
