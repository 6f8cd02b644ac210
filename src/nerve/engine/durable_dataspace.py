"""The dataspace of a session, kept in the store, and the runs that wait for facts in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from nerve.core.json_codec import decode_json, encode_json
from nerve.dataspace import Change, Dataspace, Fact, Pattern, Record, literal
from nerve.dataspace.builtin_records import DEFINITION_LABEL, INSTANCE_LABEL, LOG_LABEL, STATE_LABEL
from nerve.dataspace.observers import Observation
from nerve.engine.group_commit import CommitOutcome, GroupCommitter
from nerve.engine.run_fact_projection import (
    MAX_LOG_FACTS,
    RunFactProjection,
    RunFactState,
    is_logged,
    projected_labels,
    state_of_row,
)
from nerve.engine.run_summary import StoredSummary
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import JournalBroken, NerveError
from nerve.journal.events import SignalWaiting
from nerve.journal.index import RecordedEvent, read_row, read_start
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Append, EventRow, FactRow, ReplyRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.workflow import Workflow

log = logging.getLogger("nerve")

LOADED_OPEN_RUNS, LOADED_ENDED_RUNS = 300, 200
"""Number of newest runs whose facts are loaded at the first look; others follow with their next event."""
LAST_LOGGED_EVENTS = 200
"""Number of last events of the store that are read for log lines at the first look at them."""

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


@dataclass(frozen=True, slots=True)
class DataspaceSources:
    """What the dataspace asks of the engine."""

    store: Store
    get_committer: Callable[[], GroupCommitter]
    workflows: Callable[[], list[Workflow]]
    recent_runs: Callable[[int, int], list[RunRow]]
    owns: Callable[[RunRow], bool]
    summary_of_active: Callable[[str], str | None]
    """Returns the JSON of the summary of an active run; None if the run is not active."""
    on_fact: Callable[[str, str, Mapping[str, Any]], Awaitable[None] | None]
    """Settles the wait of a run at a path by a fact; returns what to await, unless the run has ended."""


class DurableDataspace:
    """The dataspace of one engine. Waits and observers see a change once it is on disk."""

    decides_tests = False

    def __init__(self, sources: DataspaceSources, session: str) -> None:
        self._sources, self._session = sources, session
        self.space = Dataspace(*self._load_stored())
        self._pending_changes: list[PendingChanges] = []
        self._in_flight: list[PendingChanges] = []
        self._watches: dict[str, dict[str, list[Callable[[], None]]]] = {}
        self._settling_waits: list[Awaitable[None]] = []
        self._projection = RunFactProjection(self.space, self._notify_observers, self._load_state)

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
        changes = self._stage(asserted, retracted, by)
        if changes:
            # A caller that is cancelled must not undo half of it: the change is applied and will be
            # written.
            await asyncio.shield(self.write(changes, make_reply(changes) if make_reply is not None else None))
        return changes

    def change_now(
        self, asserted: Sequence[Any], retracted: Sequence[Any], by: str
    ) -> asyncio.Future[None] | None:
        """Retract and assert facts; return a future that completes when the changes are on disk, if any."""
        changes = self._stage(asserted, retracted, by)
        return self.write(changes) if changes else None

    def _stage(self, asserted: Sequence[Any], retracted: Sequence[Any], by: str) -> list[Change]:
        changes = self.space.stage(asserted, retracted, by)
        for change in changes:
            self._projection.forget(change)
        return changes

    def write(self, changes: list[Change], reply: ReplyRow | None = None) -> asyncio.Future[None]:
        """Apply the changes and write them; queries see them from now on."""
        self.space.apply(changes, publish=False)
        pending = PendingChanges(changes, reply)
        self._pending_changes.append(pending)
        self._sources.get_committer().flush_soon(self)
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
        store = self._sources.store
        facts = [fact_from_row(row) for row in store.facts(self._session)]
        return facts, store.fact_version(self._session)

    # -- looking -------------------------------------------------------------------------------

    def find_facts(self, pattern: Any = None) -> list[Fact]:
        pattern = None if pattern is None else Pattern.of(pattern)
        self._ensure_projected(pattern)
        return self.space.facts(pattern)

    def observe(self, pattern: Any) -> Observation:
        self._ensure_projected(Pattern.of(pattern))
        return self.space.observe(pattern)

    def asserted_facts(self, label: str) -> list[Fact]:
        """Return the asserted facts with a label, without those projected from journals."""
        return [fact_from_row(row) for row in self._sources.store.facts(self._session, label)]

    def find_asserted(self, id: str) -> Fact | None:
        """Return the fact with this id, if it was asserted."""
        fact = self.space.fact(id)
        return None if fact is None or self.is_projected(fact) else fact

    def is_projected(self, fact: Fact) -> bool:
        """Whether a fact is projected from the journals and was not asserted."""
        return self._projection.is_projected(fact)

    def on_events(self, run: WorkflowRun, rows: Iterable[EventRow]) -> None:
        """Project committed events of a run."""
        self._projection.project_rows(run.run_id, run.workflow_id, rows)

    def on_workflow_defined(self, workflow: Workflow) -> None:
        """Project a new workflow, or a new version of one."""
        if DEFINITION_LABEL in self._projection.labels:
            self._projection.project_definitions([workflow])

    def on_workflow_removed(self, name: str) -> None:
        """Remove the projection of a workflow."""
        if DEFINITION_LABEL in self._projection.labels:
            self._projection.remove_definition(name)

    def _ensure_projected(self, pattern: Pattern | None) -> None:
        """From the first look at a label on, keep its projected facts up to date."""
        projection, labels = self._projection, projected_labels(pattern)
        new_labels = labels - projection.labels
        projection.labels |= labels
        if new_labels & {STATE_LABEL, INSTANCE_LABEL}:
            for row in self._sources.recent_runs(LOADED_OPEN_RUNS, LOADED_ENDED_RUNS):
                self._project_run(row, new_labels)
        if LOG_LABEL in new_labels:
            self._project_logs()
        if DEFINITION_LABEL in labels:
            projection.project_definitions(self._sources.workflows())
        # A run that is not among the recent ones is found by its id.
        run_id: Any = pattern.field_literal("run") if pattern and STATE_LABEL in labels else None
        is_missing = isinstance(run_id, str) and not projection.has_state(run_id)
        state = self._load_state(run_id) if is_missing else None
        if state is not None:
            projection.add_state(state)

    def _project_run(self, row: RunRow, labels: Container[str]) -> None:
        try:
            if INSTANCE_LABEL in labels:
                self._projection.add_instance(row.run, read_start(self._sources.store, row.run))
            if STATE_LABEL in labels and not self._projection.has_state(row.run):
                self._projection.add_state(self._state_of_row(row))
        except JournalBroken as error:
            log.warning("skipped run %s in the projection: %s", row.run, error)

    def _load_state(self, run_id: str) -> RunFactState | None:
        row = self._sources.store.run(run_id)
        return None if row is None or not self._sources.owns(row) else self._state_of_row(row)

    def _state_of_row(self, row: RunRow) -> RunFactState:
        """Return the state of a run; only that of an older version is read from its journal."""
        store = self._sources.store
        if (summary_of_active := self._sources.summary_of_active(row.run)) is not None:
            row = row._replace(summary=summary_of_active)
        if (summary := StoredSummary.of_row(row)) is not None:
            return state_of_row(row, summary, store.waits_of_run(row.run) if row.ended is None else ())
        start = read_start(store, row.run)
        state = state_of_row(row, StoredSummary(parent_path=start.parent_path), ())
        for recorded in map(read_row, store.events(row.run)):
            state.apply(recorded)
        return state

    def _project_logs(self) -> None:
        """Project the log lines among the last events of the store."""
        store, lines = self._sources.store, list[tuple[float, str, RecordedEvent]]()
        rows = map(store.run, store.last_written_runs(LAST_LOGGED_EVENTS))
        for row in [row for row in rows if row is not None and self._sources.owns(row)]:
            try:
                last = store.last_event(row.run)
                first = max(0, last.seq - LAST_LOGGED_EVENTS) if last is not None else 0
                recorded_events = map(read_row, store.events(row.run, first))
                lines += [(each.at, row.run, each) for each in recorded_events if is_logged(each)]
            except JournalBroken as error:
                log.warning("skipped run %s in the projection: %s", row.run, error)
        lines.sort(key=lambda line: line[0])
        for _, run_id, recorded in lines[-MAX_LOG_FACTS:]:
            self._projection.add_log_line(run_id, recorded)

    # -- waiting -------------------------------------------------------------------------------

    def match_or_watch(self, run_id: str, path: str, request: SignalWaiting) -> dict[str, Any] | None:
        """Return the fact that settles a wait, or settle the wait when a matching fact is on disk."""
        patterns = patterns_of_wait(request)
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

    def confirm_timeout(
        self, run_id: str, path: str, request: SignalWaiting, on_absent: Callable[[], object]
    ) -> None:
        """Call back: what settles the wait would have done so when it was asserted."""
        on_absent()

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
            if (settling := self._sources.on_fact(run_id, path, fact_match)) is not None:
                self._settling_waits.append(settling)


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


def patterns_of_wait(request: SignalWaiting) -> WaitPatterns:
    """Return the patterns of a wait for facts or for a signal."""
    if request.patterns is None:
        return signal_patterns(request.label or "", request.key)
    return request.patterns


def is_match_of(request: SignalWaiting, fact_match: Mapping[str, Any]) -> bool:
    """Whether a match is one for this wait, and not for an earlier one at its path."""
    pattern = patterns_of_wait(request).get(fact_match["which"])
    return pattern is not None and Pattern.of(list(pattern)).match(Record.of(fact_match["fact"])) is not None


def signal_patterns(label: str, key: str | None) -> WaitPatterns:
    """Return the patterns of a wait for a signal."""
    fields = {"value": "?value"} if key is None else {"key": literal(key), "value": "?value"}
    return {"signal": ["signal", literal(label), fields]}
