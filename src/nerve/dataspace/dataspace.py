"""The dataspace: the current facts and their observers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nerve.dataspace.errors import VersionConflict
from nerve.dataspace.facts import Change, Fact, KeyIndex
from nerve.dataspace.observers import Observation, Observer, Observers
from nerve.dataspace.pattern import Pattern
from nerve.dataspace.record import Json, Record

RecordLike = Record | str | Sequence[Json]
"""A record, its text, or its JSON form."""
PatternLike = Pattern | Record | str | Sequence[Json]
"""A pattern, its text or its JSON form, or a record that must match exactly."""
DEFAULT_BUFFER_CHANGES = 1024
"""The number of changes that an observer may lag."""


class FactMatch(NamedTuple):
    """A fact that matches a pattern, and its captures."""

    fact: Fact
    captures: dict[str, Json]


class PendingChange(NamedTuple):
    """A change to publish to observers that started at version `since` or later."""

    change: Change
    since: int = 0
    is_correction: bool = False
    """Whether it corrects what observers know, instead of being a real change."""


class Dataspace:
    """A set of facts with observers; use it from one thread only."""

    def __init__(
        self, facts: Iterable[Fact] = (), version: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._observers = Observers()
        self._pending: deque[PendingChange] = deque()
        self._publish_upto = 0
        self._is_publishing = False
        self.version = version
        """The number of the last change; it never decreases."""
        self._load_facts(facts)

    def assert_(self, record: RecordLike, by: str = "") -> Change | None:
        """Assert a fact; return None if it already exists."""
        changes = self.stage(asserted=[record], by=by)
        self.apply(changes)
        return changes[0] if changes else None

    def retract(self, pattern: PatternLike, by: str = "") -> list[Change]:
        """Retract every fact that matches."""
        changes = self.stage(retracted=[pattern], by=by)
        self.apply(changes)
        return changes

    def facts(self, pattern: PatternLike | None = None) -> list[Fact]:
        """Return the facts that match, in the order of assertion."""
        return list(self._facts.values()) if pattern is None else [match.fact for match in self.find(pattern)]

    def fact(self, id: str) -> Fact | None:
        """Return the fact with this id, or None."""
        return self._facts.get(id)

    def find(self, pattern: PatternLike) -> list[FactMatch]:
        """Return the facts that match, with their captures."""
        pattern = Pattern.of(pattern)
        candidates = (
            (fact, pattern.match(fact.record)) for fact in self._index.fewest_values(pattern.index_keys())
        )
        return [FactMatch(fact, captures) for fact, captures in candidates if captures is not None]

    def observe(
        self, pattern: PatternLike, *, present: bool = True, buffer: int = DEFAULT_BUFFER_CHANGES
    ) -> Observation:
        """Observe the changes that match a pattern; current facts come first, marked `present`."""
        pattern = Pattern.of(pattern)
        initial_changes = self._present_changes(pattern) if present else []
        return Observation(self._observers, pattern, self.version, initial_changes, buffer)

    def watch(
        self, pattern: PatternLike, callback: Callable[[Change], Any], *, present: bool = False
    ) -> Callable[[], None]:
        """Call `callback` once for each matching change; return a function that unsubscribes."""
        pattern = Pattern.of(pattern)
        initial_changes = self._present_changes(pattern) if present else []
        observer = Observer(pattern, self.version, callback)
        end = self._observers.add(observer)
        for change in initial_changes:
            observer.notify(change)
        return end

    def stage(
        self, asserted: Iterable[RecordLike] = (), retracted: Iterable[PatternLike] = (), by: str = ""
    ) -> list[Change]:
        """Return the changes of retracting and then asserting, for `apply`.

        The caller can write them together with other data in one transaction before it applies them.
        """
        at, changes, staged = self._clock(), list[Change](), dict[str, Fact | None]()
        for pattern in retracted:
            for fact in self.facts(pattern):
                if staged.setdefault(fact.id, fact) is not None:
                    staged[fact.id] = None
                    changes.append(Change("retracted", fact, self.version + len(changes) + 1, by=by))
        for record in map(Record.of, asserted):
            id, version = record.id, self.version + len(changes) + 1
            current = staged[id] if id in staged else self._facts.get(id)
            if current is None or current.record != record:
                fact = staged[id] = Fact(record, id, by, at, version)
                changes.append(Change("asserted", fact, version, replaced=current, by=by))
        return changes

    def apply(self, changes: Sequence[Change], publish: bool = True) -> None:
        """Apply staged changes; with `publish=False`, observers see them at the next `publish`."""
        for expected, change in enumerate(changes, self.version + 1):
            if change.version != expected:
                raise VersionConflict(change.version, expected)
        for change in changes:
            removed = change.replaced if change.kind == "asserted" else change.fact
            if removed is not None:
                self._index.drop(removed.record.index_keys, removed.id)
                del self._facts[removed.id]
            if change.kind == "asserted":
                self._add_fact(change.fact)
            self.version = change.version
        self._pending.extend(map(PendingChange, changes))
        if publish:
            self.publish()

    def publish(self, upto: int | None = None) -> None:
        """Notify the observers of pending changes, in order, up to a version.

        A change that an observer makes is published after all earlier changes.
        """
        self._publish_upto = max(self._publish_upto, self.version if upto is None else upto)
        if self._is_publishing:
            return
        self._is_publishing = True
        try:
            while self._pending and self._pending[0].change.version <= self._publish_upto:
                pending = self._pending.popleft()
                self._observers.notify_all(pending.change, pending.since)
        finally:
            self._is_publishing = False

    def reload(self, facts: Iterable[Fact], version: int = 0) -> None:
        """Replace all facts; unpublished changes are undone.

        Observers that started after an undone change have seen it and get a correction.
        """
        undone = [pending.change for pending in self._pending if not pending.is_correction]
        self._pending = deque(pending for pending in self._pending if pending.is_correction)
        self.version = max(version, self.version)
        known = dict(self._facts)
        for change in reversed(undone):
            # Undo a change in the known facts; observers that started after it get a correction.
            if change.kind == "asserted":
                wrong, right = known.pop(change.fact.id), change.replaced
            else:
                wrong, right = None, change.fact
            if right is not None:
                known[right.id] = right
            self._queue_correction(wrong, right, change.version)
        self._load_facts(facts)
        for id in {**known, **self._facts}:
            if known.get(id) != self._facts.get(id):
                self._queue_correction(known.get(id), self._facts.get(id))
        self.publish()

    def close(self) -> None:
        """End all observations."""
        self._observers.close()

    def _load_facts(self, facts: Iterable[Fact]) -> None:
        self._facts: dict[str, Fact] = {}
        self._index: KeyIndex[Fact] = KeyIndex()
        for fact in sorted(facts, key=lambda fact: fact.version):
            self._add_fact(fact)
            self.version = max(fact.version, self.version)

    def _add_fact(self, fact: Fact) -> None:
        self._facts[fact.id] = fact
        self._index.put(fact.record.index_keys, fact.id, fact)

    def _queue_correction(self, wrong: Fact | None, right: Fact | None, since: int = 0) -> None:
        self.version += 1
        if right is not None:
            change = Change("asserted", right, self.version, replaced=wrong, by=right.asserted_by)
        else:
            assert wrong is not None
            change = Change("retracted", wrong, self.version)
        self._pending.append(PendingChange(change, since, is_correction=True))

    def _present_changes(self, pattern: Pattern) -> list[Change]:
        return [
            Change("asserted", fact, fact.version, captures, present=True, by=fact.asserted_by)
            for fact, captures in self.find(pattern)
        ]
