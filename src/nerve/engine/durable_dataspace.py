"""Facts: the dataspace of a session, kept in the store, and the runs that wait for something in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from nerve.core.json_codec import decode_json, encode_json
from nerve.dataspace import Change, Dataspace, Fact, Record, literal
from nerve.dataspace.observers import Observation
from nerve.engine.group_commit import CommitOutcome
from nerve.engine.run_fact_projection import RunFactProjection
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import JournalBroken, NerveError
from nerve.store.port import Append, EventRow, FactRow, ReplyRow

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.workflow import Workflow
    from nerve.engine.local_engine import LocalEngine

log = logging.getLogger("nerve")

ChangeReplyFactory = Callable[[list[Change]], ReplyRow]
"""What is said of changes, to be written with them."""

WaitPatterns = Mapping[str, Sequence[Any]]
"""What a wait looks for, by the names under which the result says which it was."""


@dataclass(slots=True)
class PendingChanges:
    """Changes that are made, and not yet on disk."""

    changes: list[Change]
    reply: ReplyRow | None = None
    durable: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    matched_waits: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Who has looked and seen one of them: the run, the path of the wait, and what it is told."""


class DurableDataspace:
    """One per engine. A change counts for waits and observers when it is on disk."""

    def __init__(self, engine: LocalEngine, session: str) -> None:
        self._engine, self._session = engine, session
        self.space = Dataspace(*self._load_stored())
        self._pending_changes: list[PendingChanges] = []
        self._in_flight: list[PendingChanges] = []
        self._watches: dict[str, dict[str, list[Callable[[], None]]]] = {}
        self._settling_waits: list[Awaitable[None]] = []
        self._projection = RunFactProjection(self.space, self._notify_observers)

    # -- changing ------------------------------------------------------------------------------

    async def change(
        self,
        asserted: Sequence[Any] = (),
        retracted: Sequence[Any] = (),
        by: str = "",
        saying: ChangeReplyFactory | None = None,
    ) -> list[Change]:
        """Retract and assert; returns when that is on disk, and every wait that it settles is too.

        What `saying` makes of the changes is written with them, if there are any.
        """
        changes = self.space.stage(asserted, retracted, by)
        for change in changes:
            self._projection.forget(change)
        if changes:
            await asyncio.shield(self.write(changes, saying(changes) if saying is not None else None))
        return changes

    def write(self, changes: list[Change], reply: ReplyRow | None = None) -> asyncio.Future[None]:
        """Make the changes, and write them; whoever looks from now on sees them."""
        self.space.apply(changes, publish=False)
        pending = PendingChanges(changes, reply)
        self._pending_changes.append(pending)
        self._engine.committer.flush_soon(self)
        return pending.durable

    def drain(self) -> Append | None:
        self._in_flight, self._pending_changes = self._pending_changes, []
        rows = [
            to_fact_row(self._session, change) for pending in self._in_flight for change in pending.changes
        ]
        replies = [pending.reply for pending in self._in_flight if pending.reply is not None]
        return Append("", 0, (), facts=rows, replies=replies) if rows else None

    def on_commit(self, error: CommitOutcome) -> None:
        in_flight, self._in_flight = self._in_flight, []
        if error is not None:
            self._roll_back(in_flight, error)
            return
        for pending in in_flight:
            self.space.publish(pending.changes[-1].version)
            for run_id, path, fact_match in pending.matched_waits:
                self._settle_wait(run_id, path, fact_match)
            settling, self._settling_waits = self._settling_waits, []
            spawn_detached(complete_change(pending.durable, settling))
        self._notify_observers()

    def _notify_observers(self) -> None:
        """Tell of what is only read from journals, unless something before it is not on disk yet."""
        if not self._pending_changes and not self._in_flight:
            self.space.publish()

    def _roll_back(self, in_flight: list[PendingChanges], error: NerveError) -> None:
        """What could not be written has not happened, nor has what was proposed on top of it."""
        lost_changes, self._pending_changes = [*in_flight, *self._pending_changes], []
        for pending in lost_changes:
            if not pending.durable.done():
                pending.durable.set_exception(error)
        facts, version = self._load_stored()
        self.space.reload([*facts, *self._projection.facts()], version)

    def _load_stored(self) -> tuple[list[Fact], int]:
        store = self._engine.store
        facts = [fact_from_row(row) for row in store.facts(self._session)]
        return facts, store.fact_version(self._session)

    # -- looking -------------------------------------------------------------------------------

    def find_facts(self, pattern: Any = None) -> list[Fact]:
        self._ensure_projected()
        return self.space.facts(pattern)

    def observe(self, pattern: Any) -> Observation:
        self._ensure_projected()
        return self.space.observe(pattern)

    def asserted_facts(self, label: str) -> list[Fact]:
        """The facts that somebody asserted, without what is read from the journals."""
        return [fact_from_row(row) for row in self._engine.store.facts(self._session, label)]

    def find_asserted(self, id: str) -> Fact | None:
        """The fact with this id, if somebody asserted it."""
        fact = self.space.fact(id)
        return None if fact is None or self.is_projected(fact) else fact

    def is_projected(self, fact: Fact) -> bool:
        """Whether a fact is read from the journals and asserted by nobody."""
        return self._projection.is_projected(fact)

    def on_events(self, run: WorkflowRun, rows: Iterable[EventRow]) -> None:
        """Something about a run is on disk."""
        self._projection.project_rows(run, rows)

    def on_workflow_defined(self, workflow: Workflow) -> None:
        """There is a new workflow, or a new version of one."""
        if self._projection.is_started:
            self._projection.project_definitions([workflow])

    def on_workflow_removed(self, name: str) -> None:
        """A workflow is not there any more."""
        if self._projection.is_started:
            self._projection.remove_definition(name)

    def _ensure_projected(self) -> None:
        """From the first look on, what can be read of runs and workflows is among the facts."""
        engine = self._engine
        if not self._projection.is_started:
            self._projection.start(self._recent_journals())
        self._projection.project_definitions(engine.workflows())

    def _recent_journals(self) -> Iterator[tuple[WorkflowRun, Iterable[EventRow]]]:
        """What the journals say; one that cannot be read hides no other."""
        engine = self._engine
        for row in engine.recent_runs():
            try:
                rows = engine.store.events(row.run)
                run = engine.run_handle(row, rows)
            except JournalBroken as error:
                log.warning("run %s is not among the facts: %s", row.run, error)
            else:
                yield run, rows

    # -- waiting -------------------------------------------------------------------------------

    def match_or_watch(self, run_id: str, path: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """What settles a wait now; if there is nothing, the wait is woken when it comes, and is on disk."""
        patterns = (
            request["patterns"]
            if "patterns" in request
            else signal_patterns(request["label"], request["key"])
        )
        first: tuple[PendingChanges, dict[str, Any]] | None = None
        for pattern_name, pattern in patterns.items():
            for fact, captures in self.space.find(list(pattern)):
                fact_match = fact_match_data(pattern_name, fact.record, captures)
                if (pending := self._pending_change_of(fact)) is None:
                    return fact_match
                first = first or (pending, fact_match)
        if first is not None:
            first[0].matched_waits.append((run_id, path, first[1]))
        watches = self._watches.setdefault(run_id, {})
        if path not in watches:
            watches[path] = [
                self.space.watch(list(pattern), partial(self._on_change, run_id, path, pattern_name))
                for pattern_name, pattern in patterns.items()
            ]
        return None

    def _pending_change_of(self, fact: Fact) -> PendingChanges | None:
        """The change that a fact comes from, if that is not on disk yet."""
        for pending in (*self._in_flight, *self._pending_changes):
            if pending.changes[0].version <= fact.version <= pending.changes[-1].version:
                return pending
        return None

    def unwatch(self, run_id: str, path: str | None = None) -> None:
        """A wait, or all waits of a run, are over."""
        watches = self._watches.get(run_id)
        if watches is None:
            return
        for wait_path in [path] if path is not None else list(watches):
            for end in watches.pop(wait_path, ()):
                end()
        if not watches:
            del self._watches[run_id]

    def _on_change(self, run_id: str, path: str, pattern_name: str, change: Change) -> None:
        if change.kind == "asserted":
            self._settle_wait(
                run_id, path, fact_match_data(pattern_name, change.fact.record, change.captures)
            )

    def _settle_wait(self, run_id: str, path: str, fact_match: dict[str, Any]) -> None:
        """Settle a wait, unless something else has."""
        if path in self._watches.get(run_id, {}):
            self.unwatch(run_id, path)
            self._settling_waits.append(self._engine.commands.on_fact(run_id, path, fact_match))


async def complete_change(durable: asyncio.Future[None], waits: list[Awaitable[None]]) -> None:
    """The change is done when the waits that it settles are."""
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    if not durable.done():
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        durable.set_exception(errors[0]) if errors else durable.set_result(None)


def fact_match_data(pattern_name: str, record: Record, captures: Mapping[str, Any]) -> dict[str, Any]:
    """What a wait is told."""
    return {"which": pattern_name, "fact": record.to_json(), "captures": dict(captures)}


def to_fact_row(session: str, change: Change) -> FactRow:
    fact = change.fact
    record = encode_json(fact.record.to_json()) if change.kind == "asserted" else None
    return FactRow(session, fact.id, change.version, fact.at, fact.asserted_by, record)


def fact_from_row(row: FactRow) -> Fact:
    assert row.record is not None
    return Fact(Record.of(decode_json(row.record)), row.id, row.by, row.at, row.version)


def signal_patterns(label: str, key: str | None) -> WaitPatterns:
    """What a wait for a signal looks for."""
    fields = {"value": "?value"} if key is None else {"key": literal(key), "value": "?value"}
    return {"signal": ["signal", literal(label), fields]}
