"""Fork: start a run whose journal begins as a copy of another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nerve.core.clock import Clock
from nerve.core.json_codec import encode_json
from nerve.core.limits import split_step_limits
from nerve.core.nodes.active_workspace import move_shared_workspace
from nerve.core.step_names import step_path
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.engine.child_runs import child_id, find_child_attempts, has_asked_person
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.journal_writer import JournalCallbacks, JournalWriter
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_starters import add_earlier_starters
from nerve.journal.events import CallStarted, RunStarted
from nerve.journal.failures import find_failures
from nerve.journal.fork_point import ForkPoint, copied_events
from nerve.journal.index import JournalIndex, RecordedEvent, read_events, read_start
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Definition, EventRow, ReplyRow, RunRow, Store

UNCHANGED_INPUT: Any = ...
ANOTHER_INPUT: Any = object()
"""Stands for any other input in the plan of a fork that is only previewed."""


@dataclass(frozen=True, slots=True)
class ForkServices:
    """What a fork asks of the engine."""

    store: Store
    clock: Clock
    session_name: str
    get_committer: Callable[[], GroupCommitter]
    workflow_of: Callable[[RunRow], Workflow]
    has_workflow: Callable[[RunRow], bool]
    definition_of: Callable[[Workflow], Definition]
    attach_sinks: Callable[[WorkflowRun], None]
    make_run_row: Callable[[WorkflowRun, WorkflowState, float | None, RunStarted, float, str], RunRow]
    publish: Callable[[WorkflowRun, list[EventRow], str | None], None]
    rebuild_run: Callable[[WorkflowRun], object]

    def has_asked_person(self, run_id: str) -> bool:
        return has_asked_person(self.store, run_id)


def validate_overrides(overrides: Any) -> dict[str, dict[str, Any]]:
    """Return overrides as a mapping by path; raise ValueError if they have another shape."""
    overrides_by_path: dict[Any, Any] = (
        dict(overrides) if isinstance(overrides, Mapping) else {None: overrides}
    )
    if not all(
        isinstance(path, str) and isinstance(fields, Mapping) for path, fields in overrides_by_path.items()
    ):
        example = "{'/build': {'command': 'make'}}"
        raise ValueError(f"overrides must map step paths to settings, such as {example}, got {overrides!r}")
    return {path: dict(fields) for path, fields in overrides_by_path.items()}


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork copies, decided before anything is written."""

    row: RunRow
    journal: SourceJournal
    """The journal of the source, with the start that the fork derives from."""
    fork_point: ForkPoint
    workflow: Workflow
    input: Any
    at: str | None
    is_changed: bool = False
    """Whether the input or the definition of the workflow differs from that of the source."""


def plan_fork(
    services: ForkServices,
    source: str,
    at: str | None,
    input: Any = UNCHANGED_INPUT,
    overrides: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    definition: str | None = None,
) -> ForkPlan:
    """Return the plan of a run that reuses what `source` has settled, and runs on its own from `at`."""
    row, journal = load_fork_source(services, source)
    start = journal.start
    changes = validate_overrides(overrides)
    if input is not UNCHANGED_INPUT and at is not None:
        changes.setdefault(at, {})["input"] = input
    new_input = input if input is not UNCHANGED_INPUT and at is None else start.input
    # An answer was given for the old input; with a new one every person is asked again.
    is_input_changed = new_input is ANOTHER_INPUT or (
        encode_json(new_input, canonical=True) != encode_json(start.input, canonical=True)
    )
    paths = list(dict.fromkeys([*([at] if at is not None else []), *changes]))
    fork_point = ForkPoint.at_paths(paths, journal.events, services.has_asked_person, is_input_changed)
    workflow = services.workflow_of(row if definition is None else row._replace(definition=definition))
    start = replace(start, overrides={**(start.overrides or {}), **changes}, parent=None)
    if is_changed := workflow.definition()[0] != start.definition:
        start = replace(start, steps=list(workflow.steps))
    return ForkPlan(
        row,
        replace(journal, start=start),
        fork_point,
        workflow,
        new_input,
        at,
        is_input_changed or is_changed,
    )


def plan_retry(services: ForkServices, source: str) -> ForkPlan:
    """Return the plan of a run that reuses what `source` has settled, and runs failed steps again."""
    row, journal = load_fork_source(services, source)
    failed = find_failures(journal.events)
    fork_point = ForkPoint.at_failures(journal.events, failed, services.has_asked_person)
    start, workflow = replace(journal.start, parent=None), services.workflow_of(row)
    is_changed = workflow.definition()[0] != start.definition
    at = next(iter(failed), None)
    return ForkPlan(row, replace(journal, start=start), fork_point, workflow, start.input, at, is_changed)


def copy_planned(
    services: ForkServices,
    plan: ForkPlan,
    key: str | None = None,
    limits: Mapping[str, Any] = MappingProxyType({}),
    caller: dict[str, str] | None = None,
    run_id: str | None = None,
) -> list[RunCopy]:
    """Return the copies for the run of a plan: the open and failed child runs of its source, then itself."""
    start = replace(plan.journal.start, key=key, caller=add_earlier_starters(caller, plan.journal.start))
    run = WorkflowRun(plan.workflow, plan.input, start.params, run_id=run_id, about=start.metadata)
    journal = replace(plan.journal, start=start)
    return copy_run_tree(services, plan.row, journal, run, plan.fork_point, plan.at, limits)


@dataclass(frozen=True, slots=True)
class SourceJournal:
    """The journal of the run to fork, and the start that the fork derives from."""

    start: RunStarted
    events: list[RecordedEvent]
    index: JournalIndex

    @classmethod
    def read(cls, services: ForkServices, run_id: str) -> SourceJournal:
        events = read_events(services.store.events(run_id))
        index = JournalIndex(events)
        return cls(index.start, events, index)


def load_fork_source(services: ForkServices, source: str) -> tuple[RunRow, SourceJournal]:
    """Return the row and the journal of the run to fork."""
    row = services.store.run(source)
    journal = SourceJournal.read(services, source)
    if row is None or not journal.events:
        raise ValueError(f"Workflow run '{source}' not found")
    if row.session != services.session_name:
        hint = f"not to '{services.session_name}'. Fork or retry it there."
        raise ValueError(f"Run '{source}' belongs to session '{row.session}', {hint}")
    return row, journal


async def start_fork(
    services: ForkServices, copies: Sequence[RunCopy], reply: ReplyRow | None
) -> WorkflowRun:
    """Write a fork, the last of these copies, and its open child runs, and execute it."""
    await copy_artifacts_of(copies)
    run = copies[-1].run
    # Appended in one turn of the loop, so one commit holds the whole tree: a fork never exists without the
    # children that its journal names.
    await asyncio.gather(
        *(write_copy(services, run_copy, reply if run_copy.run is run else None) for run_copy in copies)
    )
    services.rebuild_run(run)
    return run


async def copy_artifacts_of(copies: Sequence[RunCopy]) -> None:
    """Copy the artifacts of the sources, before a journal exists that can start the forks."""
    for run_copy in copies:
        if (folder := run_copy.run.workflow.artifacts) is not None:
            await asyncio.to_thread(copy_artifacts, folder, run_copy.source_id, run_copy.run.run_id)


def copy_artifacts(folder: Path, source: str, run: str) -> None:
    """Copy the files of the copied steps to the fork; links stay links."""
    if (folder / source).is_symlink() or not (folder / source).is_dir():
        return
    from shutil import copytree  # imported here: it takes milliseconds, and few forks need it

    try:
        copytree(folder / source, folder / run, symlinks=True)
    except OSError as error:
        raise ValueError(f"Cannot copy the files in {folder / source} to the fork: {error}") from error


def check_fork_source(store: Store, key: str, run: str, source: str) -> None:
    """Raise ValueError if a key belongs to a run that is not a fork of this one."""
    if read_start(store, run).source_run != source:
        raise ValueError(f"Key '{key}' belongs to run '{run}', which is not a fork of '{source}'")


@dataclass(slots=True)
class RunCopy:
    """A run that starts with a copy of what another has settled."""

    source_id: str
    run: WorkflowRun
    start: RunStarted
    events: list[RecordedEvent]


def copy_run_tree(
    services: ForkServices,
    row: RunRow,
    journal: SourceJournal,
    run: WorkflowRun,
    fork_point: ForkPoint,
    at: str | None = None,
    limits: Mapping[str, Any] = MappingProxyType({}),
    copied_ids: Mapping[str, str] = MappingProxyType({}),
) -> list[RunCopy]:
    """Return the copies of open child runs, followed by the fork itself.

    `copied_ids` has the ids of the copies of the runs around it, outermost first.
    """
    events, index = copied_events(journal.events, fork_point), journal.index
    run_limits, step_limits = raise_limits(index, limits)
    copied_ids = {**copied_ids, row.run: run.run_id}
    if (workspace := journal.start.workspace) is not None:
        workspace = move_shared_workspace(workspace, copied_ids, next(iter(copied_ids.values())))
    start = replace(
        journal.start,
        workspace=workspace,
        run_id=run.run_id,
        input=run.input,
        definition=run.workflow.definition()[0],
        forked_from={
            "run": row.run,
            "at": at,
            # The start event is counted too: usage and limits of copied events belong to the source.
            "copied": len(events) + 1,
            "origins": index.start.origin_ids or [row.run],
            **unknown_outcome_fields(index, fork_point),
        },
        limits=run_limits,
        raised=step_limits or None,
        # A fork is the first run of its own chain.
        continued_from=None,
        started_by=None,
    )
    settled_paths = {copied.path for copied in events if copied.settles}
    child_run_copies: list[RunCopy] = []
    for number, copied in enumerate(events):
        call, path = copied.event, copied.path
        if isinstance(call, CallStarted) and call.child is not None and path not in settled_paths:
            # Ids of children derive from the id of their parent, so the copied start must name the new
            # child.
            events[number] = copied._replace(event=call._replace(child=child_id(run.run_id, path)))
            if (child_row := find_copied_child(services, row, index, path)) is not None:
                child_run_copies += copy_child_runs(
                    services, child_row, run.run_id, path, fork_point, copied_ids
                )
    return [*child_run_copies, RunCopy(row.run, run, start, events)]


def find_copied_child(services: ForkServices, row: RunRow, index: JournalIndex, path: str) -> RunRow | None:
    """Return the child run of a call without a copied outcome, which continues in the fork."""
    attempt_rows = find_child_attempts(services.store, row.run, index.resets.call_key(path))
    return find_current_row(services.store, attempt_rows[-1]) if attempt_rows else None


def copy_child_runs(
    services: ForkServices,
    row: RunRow,
    parent: str,
    path: str,
    parent_fork_point: ForkPoint,
    copied_ids: Mapping[str, str],
) -> list[RunCopy]:
    """Return the copies of an open child run and its own open children."""
    journal = SourceJournal.read(services, row.run)
    if not journal.events or not services.has_workflow(row):
        return []
    start = replace(journal.start, key=None, parent=parent)
    child = WorkflowRun(
        services.workflow_of(row),
        start.input,
        start.params,
        run_id=child_id(parent, path),
        about=start.metadata,
    )
    fork_point = child_fork_point(services, journal, path, parent_fork_point)
    return copy_run_tree(
        services, row, replace(journal, start=start), child, fork_point, copied_ids=copied_ids
    )


def child_fork_point(
    services: ForkServices, journal: SourceJournal, path: str, parent_fork_point: ForkPoint
) -> ForkPoint:
    """Return where the copy of a child run departs from it; `path` is the call in the parent."""
    has_asked_person, is_input_changed = services.has_asked_person, path in parent_fork_point.outdated_paths
    events = journal.events
    if path in parent_fork_point.retried_calls:
        return ForkPoint.at_failures(events, find_failures(events), has_asked_person, is_input_changed)
    return ForkPoint.at_paths((), events, has_asked_person, is_input_changed)


def write_copy(services: ForkServices, run_copy: RunCopy, reply: ReplyRow | None) -> asyncio.Future[None]:
    """Append the journal of a fork; return a future that completes when it is on disk."""
    run, start = run_copy.run, run_copy.start
    run.run_state.mark_started(run.input, run.params, services.clock.time())
    services.attach_sinks(run)
    journal = JournalWriter(
        run.run_id,
        0,
        services.get_committer(),
        JournalCallbacks(
            # Stored as running: if the process ends before rebuild_run(), recovery resumes the fork.
            lambda at, summary: services.make_run_row(run, WorkflowState.RUNNING, None, start, at, summary),
            lambda rows: services.publish(run, rows, start.parent),
            lambda error: None,  # the task that awaits the write gets the error
        ),
        services.clock.time,
    )
    journal.attach_definition(services.definition_of(run.workflow))
    journal.mark_row_dirty()
    journal.append(start, "", urgent=True)
    journal.attach_reply(reply)
    for copied in run_copy.events:
        journal.append(copied.event, copied.path, copied.settles)
    return journal.wait_durable(journal.seq)


def unknown_outcome_fields(index: JournalIndex, fork_point: ForkPoint) -> dict[str, list[str]]:
    """Return the leaves with an unknown outcome, except those the fork runs again by request."""
    unknown_paths = sorted(path for path in index.unknown_outcomes if step_path(path) not in fork_point.paths)
    return {"unclear": unknown_paths} if unknown_paths else {}


def raise_limits(
    index: JournalIndex, limits: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the limits of a run, and of its steps by path, as raised before and now."""
    run_limits, limits_by_step = split_step_limits(limits)
    step_limits = dict(index.step_limits)
    for path, raised in limits_by_step.items():
        step_limits[path] = {**step_limits.get(path, {}), **raised}
    return index.limits.with_raised(run_limits).to_dict(), step_limits
