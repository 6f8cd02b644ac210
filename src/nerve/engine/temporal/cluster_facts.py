"""The facts of a session that many processes change, and the runs that wait for them.

An assertion finds the waits that it matches in its own transaction, and stores the match with each. The runs
get it after the commit. If the process dies before that, another one finds the stored matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from nerve.core.json_codec import decode_json, encode_json
from nerve.dataspace import Change, Dataspace, Pattern, Record
from nerve.engine.durable_dataspace import (
    ChangeReplyFactory,
    WaitPatterns,
    fact_from_row,
    fact_match_data,
    to_fact_row,
)
from nerve.store.port import FactRow, ReplyRow
from nerve.store.postgres_facts import FactWatch

T = TypeVar("T")
MAX_TOLD_RUNS = 500
"""How many runs one look at the stored matches tells."""

IndexKey = tuple[str, ...]


class StoredFacts(Protocol):
    """The facts and waits of a session in a transaction."""

    def version(self) -> int: ...

    def facts(self, ids: Sequence[str], labels: Sequence[str]) -> list[FactRow]: ...

    def all_facts(self) -> list[FactRow]: ...

    def write(self, rows: Sequence[FactRow], reply: ReplyRow | None) -> None: ...

    def watch(self, watch: FactWatch) -> None: ...

    def find_watch(self, run: str, path: str) -> FactWatch | None: ...

    def open_watches(self, keys: Sequence[str]) -> list[FactWatch]: ...

    def settle(self, watch: FactWatch) -> None: ...

    def unwatch(self, run: str, path: str) -> None: ...

    def matched_watches(self, age: float, limit: int) -> list[FactWatch]: ...

    def delete_matched(self, watches: Sequence[FactWatch]) -> None: ...


class FactTables(Protocol):
    """Where the facts are stored; blocks, and can be called from any thread."""

    def with_facts(self, work: Callable[[StoredFacts], T]) -> T: ...


class FactLook(NamedTuple):
    """A look of a run at the facts."""

    run: str
    path: str
    """The path of its wait."""
    patterns: WaitPatterns
    is_last: bool = False
    """Whether the wait ends if no fact matches now; otherwise it is watched."""


class FactChange(NamedTuple):
    """What an assertion or retraction has changed."""

    changes: list[Change]
    settled: list[FactWatch]
    """The waits that it has settled, whose runs do not know it yet."""


class ClusterFacts:
    """The facts of one session; its methods block, and can be called from any thread."""

    def __init__(self, tables: FactTables, session: str) -> None:
        self._tables, self._session = tables, session

    def change(
        self,
        asserted: Sequence[Any] = (),
        retracted: Sequence[Any] = (),
        by: str = "",
        make_reply: ChangeReplyFactory | None = None,
    ) -> FactChange:
        """Retract and assert facts; the reply is stored with the changes, if there are any."""
        records, patterns = list(map(Record.of, asserted)), list(map(Pattern.of, retracted))

        def change(stored: StoredFacts) -> FactChange:
            keys = [
                *(record_key(record) for record in records),
                *(pattern.index_keys()[0] for pattern in patterns),
            ]
            changes = load_facts(stored, keys).stage(records, patterns, by)
            if not changes:
                return FactChange([], [])
            reply = None if make_reply is None else make_reply(changes)
            stored.write([to_fact_row(self._session, each) for each in changes], reply)
            return FactChange(changes, settle_watches(stored, changes))

        return self._tables.with_facts(change)

    def look(
        self, family: str, looks: Sequence[FactLook], ended: Iterable[tuple[str, str]] = ()
    ) -> list[dict[str, Any] | None]:
        """Return the match of each wait, or None; a wait without one is watched from now on.

        `ended` are waits of the family, as run and path, that need no fact any more.
        """

        def look(stored: StoredFacts) -> list[dict[str, Any] | None]:
            for run, path in ended:
                stored.unwatch(run, path)
            return [look_at_facts(stored, family, each) for each in looks]

        return self._tables.with_facts(look)

    def matched_watches(self, age: float) -> list[FactWatch]:
        """Return waits that matched some seconds ago, and whose runs may not know it."""
        return self._tables.with_facts(lambda stored: stored.matched_watches(age, MAX_TOLD_RUNS))

    def delete_matched(self, watches: Sequence[FactWatch]) -> None:
        """Forget the matches that the runs know."""
        self._tables.with_facts(lambda stored: stored.delete_matched(watches))


def look_at_facts(stored: StoredFacts, family: str, look: FactLook) -> dict[str, Any] | None:
    """Return the match of a wait; if there is none, watch for one."""
    patterns = encode_patterns(look.patterns)
    watch = stored.find_watch(look.run, look.path)
    if watch is not None and watch.patterns == patterns and watch.match is not None:
        # Not deleted: this look is repeated if its result is lost, and the fact may be gone by then.
        return decode_match(watch.match)
    if (fact_match := find_match(stored, look.patterns)) is not None or look.is_last:
        stored.unwatch(look.run, look.path)
    elif watch is None or watch.patterns != patterns:
        keys = [encode_key(Pattern.of(list(each)).index_keys()[0]) for each in look.patterns.values()]
        stored.watch(FactWatch(look.run, look.path, family, patterns, keys))
    return fact_match


def find_match(stored: StoredFacts, patterns: WaitPatterns) -> dict[str, Any] | None:
    """Return the first fact that matches one of the patterns."""
    for name, each in patterns.items():
        pattern = Pattern.of(list(each))
        for fact, captures in load_facts(stored, [pattern.index_keys()[0]]).find(pattern):
            return fact_match_data(name, fact.record, captures)
    return None


def settle_watches(stored: StoredFacts, changes: Sequence[Change]) -> list[FactWatch]:
    """Store the matches of asserted facts with the waits; return these waits."""
    settled = dict[tuple[str, str], FactWatch]()
    for change in changes:
        if change.kind != "asserted":
            continue
        record = change.fact.record
        for watch in stored.open_watches([encode_key(key) for key in record.index_keys]):
            fact_match = match_record(decode_json(watch.patterns), record)
            if fact_match is not None:
                matched = watch._replace(match=encode_json(fact_match, max_depth=None))
                stored.settle(matched)
                settled[watch.run, watch.path] = matched
    return list(settled.values())


def match_record(patterns: Mapping[str, Sequence[Any]], record: Record) -> dict[str, Any] | None:
    for name, pattern in patterns.items():
        if (captures := Pattern.of(list(pattern)).match(record)) is not None:
            return fact_match_data(name, record, captures)
    return None


def load_facts(stored: StoredFacts, keys: Sequence[IndexKey]) -> Dataspace:
    """Return a dataspace with all facts that have one of the keys, and perhaps others."""
    if () in keys:
        rows = stored.all_facts()
    else:
        ids = [key[-1] for key in keys if key[1:2] == ("id",)]
        rows = stored.facts(ids, [key[0] for key in keys if key[1:2] != ("id",)])
    return Dataspace(map(fact_from_row, rows), stored.version())


def record_key(record: Record) -> IndexKey:
    return record.label, "id", record.id


def encode_key(key: IndexKey) -> str:
    return encode_json(list(key))


def encode_patterns(patterns: WaitPatterns) -> str:
    """Return the patterns of a wait in their order, which decides between two that match."""
    return encode_json({name: list(pattern) for name, pattern in patterns.items()}, max_depth=None)


def decode_match(text: str) -> dict[str, Any]:
    data: dict[str, Any] = decode_json(text)
    return data
