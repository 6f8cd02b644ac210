"""Facts: the dataspace of a session, kept in the store, and the runs that wait for something in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from nerve.core.values import decode, encode
from nerve.dataspace import Change, Dataspace, Fact, Record, literal
from nerve.dataspace.observers import Observation
from nerve.engine.projection import Projection
from nerve.engine.tasks import apart
from nerve.engine.writer import Outcome
from nerve.errors import JournalBroken, NerveError
from nerve.store.port import Append, FactRow, ReplyRow, Row

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.workflow import Workflow
    from nerve.engine.local import LocalEngine

log = logging.getLogger("nerve")

Saying = Callable[[list[Change]], ReplyRow]
"""What is said of changes, to be written with them."""

Patterns = Mapping[str, Sequence[Any]]
"""What a wait looks for, by the names under which the result says which it was."""


@dataclass(slots=True)
class Pending:
    """Changes that are made, and not yet on disk."""

    changes: list[Change]
    reply: ReplyRow | None = None
    kept: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    seen: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Who has looked and seen one of them: the run, the path of the wait, and what it is told."""


class Facts:
    """One per engine. A change counts for waits and observers when it is on disk."""

    def __init__(self, engine: LocalEngine, session: str) -> None:
        self._engine, self._session = engine, session
        self.space = Dataspace(*self._stored())
        self._pending: list[Pending] = []
        self._taken: list[Pending] = []
        self._watched: dict[str, dict[str, list[Callable[[], None]]]] = {}
        self._settling: list[Awaitable[None]] = []
        self._projection = Projection(self.space, self._tell)

    # -- changing ------------------------------------------------------------------------------

    async def change(
        self,
        asserted: Sequence[Any] = (),
        retracted: Sequence[Any] = (),
        by: str = "",
        saying: Saying | None = None,
    ) -> list[Change]:
        """Retract and assert; returns when that is on disk, and every wait that it settles is too.

        What `saying` makes of the changes is written with them, if there are any.
        """
        changes = self.space.propose(asserted, retracted, by)
        for change in changes:
            self._projection.forget(change)
        if changes:
            await asyncio.shield(self.keep(changes, saying(changes) if saying is not None else None))
        return changes

    def keep(self, changes: list[Change], reply: ReplyRow | None = None) -> asyncio.Future[None]:
        """Make the changes, and write them; whoever looks from now on sees them."""
        self.space.apply(changes, tell=False)
        pending = Pending(changes, reply)
        self._pending.append(pending)
        self._engine.writer.now(self)
        return pending.kept

    def take(self) -> Append | None:
        self._taken, self._pending = self._pending, []
        rows = [row_of(self._session, change) for each in self._taken for change in each.changes]
        replies = [each.reply for each in self._taken if each.reply is not None]
        return Append("", 0, (), facts=rows, replies=replies) if rows else None

    def written(self, error: Outcome) -> None:
        taken, self._taken = self._taken, []
        if error is not None:
            self._undo(taken, error)
            return
        for pending in taken:
            self.space.tell(pending.changes[-1].version)
            for run_id, path, told in pending.seen:
                self._settle(run_id, path, told)
            settling, self._settling = self._settling, []
            apart(settled(pending.kept, settling))
        self._tell()

    def _tell(self) -> None:
        """Tell of what is only read from journals, unless something before it is not on disk yet."""
        if not self._pending and not self._taken:
            self.space.tell()

    def _undo(self, taken: list[Pending], error: NerveError) -> None:
        """What could not be written has not happened, nor has what was proposed on top of it."""
        lost, self._pending = [*taken, *self._pending], []
        for pending in lost:
            if not pending.kept.done():
                pending.kept.set_exception(error)
        facts, version = self._stored()
        self.space.reload([*facts, *self._projection.facts()], version)

    def _stored(self) -> tuple[list[Fact], int]:
        store = self._engine.store
        facts = [fact_of(row) for row in store.facts(self._session)]
        return facts, store.fact_version(self._session)

    # -- looking -------------------------------------------------------------------------------

    def present(self, pattern: Any = None) -> list[Fact]:
        self._project()
        return self.space.facts(pattern)

    def observe(self, pattern: Any) -> Observation:
        self._project()
        return self.space.observe(pattern)

    def kept(self, label: str) -> list[Fact]:
        """The facts that somebody asserted, without what is read from the journals."""
        return [fact_of(row) for row in self._engine.store.facts(self._session, label)]

    def kept_as(self, id: str) -> Fact | None:
        """The fact with this id, if somebody asserted it."""
        fact = self.space.fact(id)
        return None if fact is None or self.is_reading(fact) else fact

    def is_reading(self, fact: Fact) -> bool:
        """Whether a fact is read from the journals and asserted by nobody."""
        return self._projection.made(fact)

    def shown(self, run: WorkflowRun, rows: Iterable[Row]) -> None:
        """Something about a run is on disk."""
        self._projection.take(run, rows)

    def defined(self, workflow: Workflow) -> None:
        """There is a new workflow, or a new version of one."""
        if self._projection.begun:
            self._projection.define([workflow])

    def undefined(self, name: str) -> None:
        """A workflow is not there any more."""
        if self._projection.begun:
            self._projection.undefine(name)

    def _project(self) -> None:
        """From the first look on, what can be read of runs and workflows is among the facts."""
        engine = self._engine
        if not self._projection.begun:
            self._projection.begin(self._past())
        self._projection.define(engine.workflows())

    def _past(self) -> Iterator[tuple[WorkflowRun, Iterable[Row]]]:
        """What the journals say; one that cannot be read hides no other."""
        engine = self._engine
        for row in engine.recent():
            try:
                past = engine.store.events(row.run)
                run = engine.handle(row, past)
            except JournalBroken as error:
                log.warning("run %s is not among the facts: %s", row.run, error)
            else:
                yield run, past

    # -- waiting -------------------------------------------------------------------------------

    def look(self, run_id: str, path: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """What settles a wait now; if there is nothing, the wait is woken when it comes, and is on disk."""
        patterns = asked["patterns"] if "patterns" in asked else signal(asked["label"], asked["key"])
        first: tuple[Pending, dict[str, Any]] | None = None
        for which, pattern in patterns.items():
            for fact, captures in self.space.find(list(pattern)):
                told = seen(which, fact.record, captures)
                if (pending := self._unwritten(fact)) is None:
                    return told
                first = first or (pending, told)
        if first is not None:
            first[0].seen.append((run_id, path, first[1]))
        watched = self._watched.setdefault(run_id, {})
        if path not in watched:
            watched[path] = [
                self.space.watch(list(pattern), partial(self._came, run_id, path, which))
                for which, pattern in patterns.items()
            ]
        return None

    def _unwritten(self, fact: Fact) -> Pending | None:
        """The change that a fact comes from, if that is not on disk yet."""
        for pending in (*self._taken, *self._pending):
            if pending.changes[0].version <= fact.version <= pending.changes[-1].version:
                return pending
        return None

    def forget(self, run_id: str, path: str | None = None) -> None:
        """A wait, or all waits of a run, are over."""
        watched = self._watched.get(run_id)
        if watched is None:
            return
        for over in [path] if path is not None else list(watched):
            for end in watched.pop(over, ()):
                end()
        if not watched:
            del self._watched[run_id]

    def _came(self, run_id: str, path: str, which: str, change: Change) -> None:
        if change.kind == "asserted":
            self._settle(run_id, path, seen(which, change.fact.record, change.captures))

    def _settle(self, run_id: str, path: str, told: dict[str, Any]) -> None:
        """Settle a wait, unless something else has."""
        if path in self._watched.get(run_id, {}):
            self.forget(run_id, path)
            self._settling.append(self._engine.commands.came(run_id, path, told))


async def settled(kept: asyncio.Future[None], waits: list[Awaitable[None]]) -> None:
    """The change is done when the waits that it settles are."""
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    if not kept.done():
        wrong = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        kept.set_exception(wrong[0]) if wrong else kept.set_result(None)


def seen(which: str, record: Record, captures: Mapping[str, Any]) -> dict[str, Any]:
    """What a wait is told."""
    return {"which": which, "fact": record.to_json(), "captures": dict(captures)}


def row_of(session: str, change: Change) -> FactRow:
    fact = change.fact
    record = encode(fact.record.to_json()) if change.kind == "asserted" else None
    return FactRow(session, fact.id, change.version, fact.at, fact.asserted_by, record)


def fact_of(row: FactRow) -> Fact:
    assert row.record is not None
    return Fact(Record.of(decode(row.record)), row.id, row.by, row.at, row.version)


def signal(label: str, key: str | None) -> Patterns:
    """What a wait for a signal looks for."""
    named = {"value": "?value"} if key is None else {"key": literal(key), "value": "?value"}
    return {"signal": ["signal", literal(label), named]}
