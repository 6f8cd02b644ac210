"""The dataspace: what is asserted now, and who is told when it changes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nerve.dataspace.errors import OutOfDate
from nerve.dataspace.facts import Change, Fact
from nerve.dataspace.index import Index
from nerve.dataspace.observers import Observation, Observers, Watcher
from nerve.dataspace.pattern import Pattern
from nerve.dataspace.plain import Json
from nerve.dataspace.record import Record

Recordish = Record | str | Sequence[Json]
"""A record, its text, or its JSON form."""
Patternish = Pattern | Record | str | Sequence[Json]
"""A pattern, its text or its JSON form, or a record that alone is meant."""
BUFFER = 1024
"""How many changes an observer may be behind."""


class Found(NamedTuple):
    """A fact that fits a pattern, and what was captured of it."""

    fact: Fact
    captures: dict[str, Json]


class News(NamedTuple):
    """A change that observers are to be told of, if they began at the version `since` or later."""

    change: Change
    since: int = 0
    correction: bool = False
    """It was not made, but puts right what observers know."""


class Dataspace:
    """Belongs to one thread, as an event loop does."""

    def __init__(
        self, facts: Iterable[Fact] = (), version: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._observers = Observers()
        self._untold: deque[News] = deque()
        self._upto = 0
        self._telling = False
        self.version = version
        """The number of the last change; it never goes back."""
        self._set(facts)

    def assert_(self, record: Recordish, by: str = "") -> Change | None:
        """Assert a fact; None if it is there already."""
        changes = self.propose(asserted=[record], by=by)
        self.apply(changes)
        return changes[0] if changes else None

    def retract(self, pattern: Patternish, by: str = "") -> list[Change]:
        """Retract every fact that fits."""
        changes = self.propose(retracted=[pattern], by=by)
        self.apply(changes)
        return changes

    def facts(self, pattern: Patternish | None = None) -> list[Fact]:
        """The facts that fit, in the order in which they were asserted."""
        return list(self._facts.values()) if pattern is None else [found.fact for found in self.find(pattern)]

    def fact(self, id: str) -> Fact | None:
        """The fact with this id, if it is there."""
        return self._facts.get(id)

    def find(self, pattern: Patternish) -> list[Found]:
        """The facts that fit, with what was captured of each."""
        pattern = Pattern.of(pattern)
        tried = ((fact, pattern.match(fact.record)) for fact in self._index.under(pattern.key()))
        return [Found(fact, captures) for fact, captures in tried if captures is not None]

    def observe(self, pattern: Patternish, *, present: bool = True, buffer: int = BUFFER) -> Observation:
        """The changes that concern a pattern from now on; first what is there, marked `present`."""
        pattern = Pattern.of(pattern)
        there = self._present(pattern) if present else []
        return Observation(self._observers, pattern, self.version, there, buffer)

    def watch(
        self, pattern: Patternish, tell: Callable[[Change], Any], *, present: bool = False
    ) -> Callable[[], None]:
        """Call `tell` once for each change that concerns a pattern; the answer ends it."""
        pattern = Pattern.of(pattern)
        there = self._present(pattern) if present else []
        watcher = Watcher(pattern, self.version, tell)
        end = self._observers.add(watcher)
        for change in there:
            watcher.say(change)
        return end

    def propose(
        self, asserted: Iterable[Recordish] = (), retracted: Iterable[Patternish] = (), by: str = ""
    ) -> list[Change]:
        """The changes that retracting and then asserting would make; `apply` makes them.

        For whoever writes them together with something else, in one transaction.
        """
        at, changes, now = self._clock(), list[Change](), dict[str, Fact | None]()
        for pattern in retracted:
            for fact in self.facts(pattern):
                if now.setdefault(fact.id, fact) is not None:
                    now[fact.id] = None
                    changes.append(Change("retracted", fact, self.version + len(changes) + 1, by=by))
        for record in map(Record.of, asserted):
            id, version = record.id, self.version + len(changes) + 1
            before = now[id] if id in now else self._facts.get(id)
            if before is None or before.record != record:
                fact = now[id] = Fact(record, id, by, at, version)
                changes.append(Change("asserted", fact, version, replaced=before, by=by))
        return changes

    def apply(self, changes: Sequence[Change], tell: bool = True) -> None:
        """Make proposed changes; without `tell` the observers learn of them when `tell` is called."""
        self._check(changes)
        for change in changes:
            gone = change.replaced if change.kind == "asserted" else change.fact
            if gone is not None:
                self._index.drop(gone.record.keys, gone.id)
                del self._facts[gone.id]
            if change.kind == "asserted":
                self._put(change.fact)
            self.version = change.version
        self._untold.extend(map(News, changes))
        if tell:
            self.tell()

    def tell(self, upto: int | None = None) -> None:
        """Tell the observers what was changed, in order, up to a version.

        An observer that changes the space is told of it after all have been told of what came before.
        """
        self._upto = max(self._upto, self.version if upto is None else upto)
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold and self._untold[0].change.version <= self._upto:
                news = self._untold.popleft()
                self._observers.tell(news.change, news.since)
        finally:
            self._telling = False

    def reload(self, facts: Iterable[Fact], version: int = 0) -> None:
        """Hold these facts and no others; what was not told has not happened.

        Whoever began to observe after a change that is undone has seen it, and is told.
        """
        undone = [news.change for news in self._untold if not news.correction]
        self._untold = deque(news for news in self._untold if news.correction)
        self.version = max(version, self.version)
        known = dict(self._facts)
        for change in reversed(undone):
            self._undo(change, known)
        self._set(facts)
        for id in {**known, **self._facts}:
            if known.get(id) != self._facts.get(id):
                self._correct(known.get(id), self._facts.get(id))
        self.tell()

    def close(self) -> None:
        """End all observations."""
        self._observers.close()

    def _check(self, changes: Sequence[Change]) -> None:
        for expected, change in enumerate(changes, self.version + 1):
            if change.version != expected:
                raise OutOfDate(change.version, expected)

    def _set(self, facts: Iterable[Fact]) -> None:
        self._facts: dict[str, Fact] = {}
        self._index: Index[Fact] = Index()
        for fact in sorted(facts, key=lambda fact: fact.version):
            self._put(fact)
            self.version = max(fact.version, self.version)

    def _put(self, fact: Fact) -> None:
        self._facts[fact.id] = fact
        self._index.put(fact.record.keys, fact.id, fact)

    def _undo(self, change: Change, known: dict[str, Fact]) -> None:
        """Take a change out of what observers know; those who began after it knew of it."""
        if change.kind == "asserted":
            wrong, right = known.pop(change.fact.id), change.replaced
        else:
            wrong, right = None, change.fact
        if right is not None:
            known[right.id] = right
        self._correct(wrong, right, change.version)

    def _correct(self, wrong: Fact | None, right: Fact | None, since: int = 0) -> None:
        self.version += 1
        if right is not None:
            change = Change("asserted", right, self.version, replaced=wrong, by=right.asserted_by)
        else:
            assert wrong is not None
            change = Change("retracted", wrong, self.version)
        self._untold.append(News(change, since, correction=True))

    def _present(self, pattern: Pattern) -> list[Change]:
        return [
            Change("asserted", fact, fact.version, captures, present=True, by=fact.asserted_by)
            for fact, captures in self.find(pattern)
        ]
