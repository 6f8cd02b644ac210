"""The dataspace of a session, kept in the store, and the runs that wait for facts in it."""

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
"""Builds the stored reply to a command from its changes."""

WaitPatterns = Mapping[str, Sequence[Any]]
"""The patterns of a wait, by the names under which the result reports a match."""


@dataclass(slots=True)
class PendingChanges:
    """Changes that are applied and not yet on disk."""

    changes: list[Change]
    reply: ReplyRow | None = None
    durable: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    matched_waits: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Waits that match one of the changes: run id, path of the wait, and match data."""


class DurableDataspace:
    """The dataspace of one engine. Waits and observers see a change once it is on disk."""

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
        make_reply: ChangeReplyFactory | None = None,
    ) -> list[Change]:
        """Retract and assert facts; return when the changes and the waits they settle are on disk.

        The reply that `make_reply` builds from the changes is written with them, if there are any.
        """
        changes = self.space.stage(asserted, retracted, by)
        for change in changes:
            self._projection.forget(change)
        if changes:
            # A caller that is cancelled must not undo half of it: the change is applied and will be
            # written.
            await asyncio.shield(self.write(changes, make_reply(changes) if make_reply is not None else None))
        return changes

    def write(self, changes: list[Change], reply: ReplyRow | None = None) -> asyncio.Future[None]:
        """Apply the changes and write them; queries see them from now on."""
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
            # Published after the commit: no run acts on a fact that a crash would take back.
            self.space.publish(pending.changes[-1].version)
            for run_id, path, fact_match in pending.matched_waits:
                self._settle_wait(run_id, path, fact_match)
            settling, self._settling_waits = self._settling_waits, []
            spawn_detached(complete_change(pending.durable, settling))
        self._notify_observers()

    def _notify_observers(self) -> None:
        """Publish projected facts, unless an earlier change is not on disk yet."""
        if not self._pending_changes and not self._in_flight:
            self.space.publish()

    def _roll_back(self, in_flight: list[PendingChanges], error: NerveError) -> None:
        """Discard changes that could not be written, and those applied on top of them."""
        lost_changes, self._pending_changes = [*in_flight, *self._pending_changes], []
        for pending in lost_changes:
            if not pending.durable.done():
                pending.durable.set_exception(error)
        # Reloading is simpler than undoing: later changes may have been computed from the lost ones.
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
        """Return the asserted facts with a label, without those projected from journals."""
        return [fact_from_row(row) for row in self._engine.store.facts(self._session, label)]

    def find_asserted(self, id: str) -> Fact | None:
        """Return the fact with this id, if it was asserted."""
        fact = self.space.fact(id)
        return None if fact is None or self.is_projected(fact) else fact

    def is_projected(self, fact: Fact) -> bool:
        """Whether a fact is projected from the journals and was not asserted."""
        return self._projection.is_projected(fact)

    def on_events(self, run: WorkflowRun, rows: Iterable[EventRow]) -> None:
        """Project committed events of a run."""
        self._projection.project_rows(run, rows)

    def on_workflow_defined(self, workflow: Workflow) -> None:
        """Project a new workflow, or a new version of one."""
        if self._projection.is_started:
            self._projection.project_definitions([workflow])

    def on_workflow_removed(self, name: str) -> None:
        """Remove the projection of a workflow."""
        if self._projection.is_started:
            self._projection.remove_definition(name)

    def _ensure_projected(self) -> None:
        """From the first query on, keep projected facts about runs and workflows up to date."""
        engine = self._engine
        if not self._projection.is_started:
            self._projection.start(self._recent_journals())
        self._projection.project_definitions(engine.workflows())

    def _recent_journals(self) -> Iterator[tuple[WorkflowRun, Iterable[EventRow]]]:
        """Yield the journals of recent runs, skipping damaged ones."""
        engine = self._engine
        for row in engine.recent_runs():
            try:
                rows = engine.store.events(row.run)
                run = engine.run_handle(row, rows)
            except JournalBroken as error:
                log.warning("skipped run %s in the projection: %s", row.run, error)
            else:
                yield run, rows

    # -- waiting -------------------------------------------------------------------------------

    def match_or_watch(self, run_id: str, path: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the fact that settles a wait, or settle the wait when a matching fact is on disk."""
        patterns = (
            request["patterns"]
            if "patterns" in request
            else signal_patterns(request["label"], request["key"])
        )
        first: tuple[PendingChanges, dict[str, Any]] | None = None
        for pattern_name, pattern in patterns.items():
            for fact, captures in self.space.find(list(pattern)):
                fact_match = fact_match_data(pattern_name, fact.record, captures)
                # A fact that is on disk wins; a pending one settles the wait only when its commit succeeds.
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
        """Return the pending change a fact comes from, if it is not on disk yet."""
        for pending in (*self._in_flight, *self._pending_changes):
            if pending.changes[0].version <= fact.version <= pending.changes[-1].version:
                return pending
        return None

    def unwatch(self, run_id: str, path: str | None = None) -> None:
        """Stop watching for one wait, or for all waits of a run."""
        watches = self._watches.get(run_id)
        if watches is None:
            return
        for wait_path in [path] if path is not None else list(watches):
            for stop_watching in watches.pop(wait_path, ()):
                stop_watching()
        if not watches:
            del self._watches[run_id]

    def _on_change(self, run_id: str, path: str, pattern_name: str, change: Change) -> None:
        if change.kind == "asserted":
            self._settle_wait(
                run_id, path, fact_match_data(pattern_name, change.fact.record, change.captures)
            )

    def _settle_wait(self, run_id: str, path: str, fact_match: dict[str, Any]) -> None:
        """Settle a wait, unless it was settled before."""
        if path in self._watches.get(run_id, {}):
            self.unwatch(run_id, path)
            self._settling_waits.append(self._engine.commands.on_fact(run_id, path, fact_match))


async def complete_change(durable: asyncio.Future[None], waits: list[Awaitable[None]]) -> None:
    """Complete a change when the waits it settles are on disk."""
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    if not durable.done():
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        durable.set_exception(errors[0]) if errors else durable.set_result(None)


def fact_match_data(pattern_name: str, record: Record, captures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a match for a wait."""
    return {"which": pattern_name, "fact": record.to_json(), "captures": dict(captures)}


def to_fact_row(session: str, change: Change) -> FactRow:
    """Return the stored row of a change."""
    fact = change.fact
    record = encode_json(fact.record.to_json()) if change.kind == "asserted" else None
    return FactRow(session, fact.id, change.version, fact.at, fact.asserted_by, record)


def fact_from_row(row: FactRow) -> Fact:
    """Return the fact of a stored row."""
    assert row.record is not None
    return Fact(Record.of(decode_json(row.record)), row.id, row.by, row.at, row.version)


def signal_patterns(label: str, key: str | None) -> WaitPatterns:
    """Return the patterns of a wait for a signal."""
    fields = {"value": "?value"} if key is None else {"key": literal(key), "value": "?value"}
    return {"signal": ["signal", literal(label), fields]}
