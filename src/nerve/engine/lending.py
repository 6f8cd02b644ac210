"""Lending: the conversations that a fork finds in the journal that it was copied from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nerve.core.threads import Lent
from nerve.core.values import decode
from nerve.engine.records import copied
from nerve.store.port import Row, Store


class Lending:
    """Says of a conversation how it stands in the run that it belongs to."""

    def __init__(self, store: Store, start: Mapping[str, Any], past: Sequence[Row]) -> None:
        self._store, self._start = store, start
        self._taken: dict[str, int] = {}
        for thread, _ in talked(past[: copied(start)]):
            self._taken[thread] = self._taken.get(thread, 0) + 1

    def __call__(self, thread: str) -> Lent | None:
        if thread not in self._taken:
            return None
        told = [totals for each, totals in talked(self._owner()) if each == thread]
        counted = [totals for totals in told if totals]
        return Lent(counted[-1] if counted else {}, len(told) > self._taken[thread])

    def _owner(self) -> list[Row]:
        """The journal of the run that nobody forked: it is the one that goes on in its conversations."""
        start, past = self._start, list[Row]()
        while "forked_from" in start and (rows := self._store.events(start["forked_from"]["run"])):
            start, past = decode(rows[0].data), rows
        return past


def talked(rows: Iterable[Row]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The conversations that steps ended in, and what their providers had counted there."""
    for row in rows:
        if row.settles and '"thread"' in row.data:
            attributes = (decode(row.data).get("result") or {}).get("attributes") or {}
            if (thread := attributes.get("thread")) is not None:
                yield thread, attributes.get("totals") or {}
