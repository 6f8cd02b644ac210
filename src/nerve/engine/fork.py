"""Fork: start a run whose journal begins as a copy of another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nerve.core.events import JournalRow
from nerve.core.json_codec import MAX_EVENT_DEPTH, decode_json, encode_json
from nerve.core.limits import split_step_limits
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.engine.child_runs import child_id, find_child_attempts
from nerve.engine.journal_writer import JournalWriter
from nerve.engine.run_commands import ignore_write_error
from nerve.journal.events import (
    START_METADATA,
    call_key,
    find_resets,
    limits_of_run,
    origin_ids,
    raised_step_limits,
    step_of_attempt,
)
from nerve.journal.failures import find_failures
from nerve.journal.fork_point import ForkPoint, copied_rows
from nerve.journal.replay import is_child_start, unknown_outcomes
from nerve.store.port import EventRow, ReplyRow, RunRow

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

UNCHANGED_INPUT: Any = ...


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


async def fork_run(
    engine: LocalEngine,
    source: str,
    at: str | None,
    input: Any,
    overrides: Mapping[str, Mapping[str, Any]],
    key: str | None = None,
    limits: Mapping[str, Any] = MappingProxyType({}),
    reply: ReplyRow | None = None,
) -> WorkflowRun:
    """Start a run that copies what `source` has settled, and runs on its own from the path `at`."""
    row, rows = load_fork_source(engine, source)
    start = decode_json(rows[0].data)
    changes = validate_overrides(overrides)
    if input is not UNCHANGED_INPUT and at is not None:
        changes.setdefault(at, {})["input"] = input
    new_input = input if input is not UNCHANGED_INPUT and at is None else start["input"]
    # An answer was given for the old input; with a new one every person is asked again.
    is_input_changed = encode_json(new_input, canonical=True) != encode_json(start["input"], canonical=True)
    paths = list(dict.fromkeys([*([at] if at is not None else []), *changes]))
    fork_point = ForkPoint.at_paths(paths, rows, engine.has_asked_person, is_input_changed)
    run = WorkflowRun(engine.workflow_of(row), new_input, start["params"], about=fork_metadata(start))
    new_fields = {"at": at, "overrides": {**start.get("overrides", {}), **changes}} | key_fields(key)
    return await start_fork(
        engine, copy_run_tree(engine, row, rows, run, fork_point, new_fields, limits), reply
    )


async def retry_failed_run(
    engine: LocalEngine, source: str, key: str | None = None, reply: ReplyRow | None = None
) -> WorkflowRun:
    """Start a run that copies what `source` has settled, and runs failed steps again, in children too."""
    row, rows = load_fork_source(engine, source)
    start = decode_json(rows[0].data)
    failed = find_failures(rows)
    fork_point = ForkPoint.at_failures(rows, failed, engine.has_asked_person)
    run = WorkflowRun(engine.workflow_of(row), start["input"], start["params"], about=fork_metadata(start))
    new_fields = {"at": next(iter(failed), None)} | key_fields(key)
    return await start_fork(engine, copy_run_tree(engine, row, rows, run, fork_point, new_fields), reply)


def load_fork_source(engine: LocalEngine, source: str) -> tuple[RunRow, list[EventRow]]:
    """Return the row and the journal of the run to fork."""
    row = engine.store.run(source)
    rows = engine.store.events(source)
    if row is None or not rows:
        raise ValueError(f"Workflow run '{source}' not found")
    if not engine.owns(row):
        hint = f"not to '{engine._session_name}'. Fork or retry it there."
        raise ValueError(f"Run '{source}' belongs to session '{row.session}', {hint}")
    return row, rows


def key_fields(key: str | None) -> dict[str, str]:
    return {} if key is None else {"key": key}


async def start_fork(engine: LocalEngine, copies: Sequence[RunCopy], reply: ReplyRow | None) -> WorkflowRun:
    """Write a fork, the last of these copies, and its open child runs, and execute it."""
    # Files first: once the journal exists, recovery may start the fork, and its steps expect them.
    for run_copy in copies:
        if (folder := run_copy.run.workflow.artifacts) is not None:
            await asyncio.to_thread(copy_artifacts, folder, run_copy.source_id, run_copy.run.run_id)
    run = copies[-1].run
    # Appended in one turn of the loop, so one commit holds the whole tree: a fork never exists without the
    # children that its journal names.
    await asyncio.gather(
        *(write_copy(engine, run_copy, reply if run_copy.run is run else None) for run_copy in copies)
    )
    engine.rebuild_run(run)
    return run


def copy_artifacts(folder: Path, source: str, run: str) -> None:
    """Copy the files of the copied steps to the fork; links stay links."""
    if (folder / source).is_symlink() or not (folder / source).is_dir():
        return
    from shutil import copytree  # imported here: it takes milliseconds, and few forks need it

    try:
        copytree(folder / source, folder / run, symlinks=True)
    except OSError as error:
        raise ValueError(f"Cannot copy the files in {folder / source} to the fork: {error}") from error


def fork_source_of(engine: LocalEngine, run: str) -> str | None:
    """Return the run that a run was forked from."""
    start = decode_json(engine.store.events(run, limit=1)[0].data)
    source_id: str | None = start.get("forked_from", {}).get("run")
    return source_id


def check_fork_source(engine: LocalEngine, key: str, run: str, source: str) -> None:
    """Raise ValueError if a key belongs to a run that is not a fork of this one."""
    if fork_source_of(engine, run) != source:
        raise ValueError(f"Key '{key}' belongs to run '{run}', which is not a fork of '{source}'")


@dataclass(slots=True)
class RunCopy:
    """A run that starts with a copy of what another has settled."""

    source_id: str
    run: WorkflowRun
    start_data: dict[str, Any]
    rows: list[EventRow]


def copy_run_tree(
    engine: LocalEngine,
    row: RunRow,
    journal_rows: list[EventRow],
    run: WorkflowRun,
    fork_point: ForkPoint,
    new_fields: dict[str, Any],
    limits: Mapping[str, Any] = MappingProxyType({}),
) -> list[RunCopy]:
    """Return the copies of open child runs, followed by the fork itself."""
    rows, resets = copied_rows(journal_rows, fork_point), find_resets(journal_rows)
    source_start = decode_json(journal_rows[0].data)
    start = {
        **{name: value for name, value in source_start.items() if name not in ("key", "parent")},
        "run_id": run.run_id,
        "input": run._input,
        "definition": run.workflow.definition()[0],
        "forked_from": {
            "run": row.run,
            "at": new_fields.pop("at", None),
            # The start event is counted too: usage and limits of copied events belong to the source.
            "copied": len(rows) + 1,
            "origins": origin_ids(source_start) or [row.run],
            **unknown_outcome_fields(journal_rows, fork_point),
        },
        **fork_limits(journal_rows, limits),
        **new_fields,
    }
    child_run_copies: list[RunCopy] = []
    for number, copied_row in enumerate(rows):
        if is_child_start(copied_row) and (source := open_child_id(copied_row, rows)) is not None:
            # Ids of children derive from the id of their parent, so the copied start must name the new
            # child.
            rows[number] = with_child_id(copied_row, source, child_id(run.run_id, copied_row.path))
            if attempt_rows := find_child_attempts(engine.store, row.run, call_key(copied_row.path, resets)):
                child_run_copies += copy_child_runs(
                    engine, attempt_rows[-1], run.run_id, copied_row.path, fork_point
                )
    return [*child_run_copies, RunCopy(row.run, run, start, rows)]


def copy_child_runs(
    engine: LocalEngine, row: RunRow, parent: str, path: str, parent_fork_point: ForkPoint
) -> list[RunCopy]:
    """Return the copies of an open child run and its own open children."""
    rows = engine.store.events(row.run)
    if not rows or not engine.has_workflow(row):
        return []
    start = decode_json(rows[0].data)
    child = WorkflowRun(
        engine.workflow_of(row),
        start["input"],
        start["params"],
        run_id=child_id(parent, path),
        about=fork_metadata(start),
    )
    has_asked_person, is_input_changed = engine.has_asked_person, path in parent_fork_point.outdated_paths
    is_retried = path in parent_fork_point.retried_calls
    fork_point = (
        ForkPoint.at_failures(rows, find_failures(rows), has_asked_person, is_input_changed)
        if is_retried
        else ForkPoint.at_paths((), rows, has_asked_person, is_input_changed)
    )
    return copy_run_tree(engine, row, rows, child, fork_point, {"parent": parent})


def write_copy(engine: LocalEngine, run_copy: RunCopy, reply: ReplyRow | None) -> asyncio.Future[None]:
    """Append the journal of a fork; return a future that completes when it is on disk."""
    run, start = run_copy.run, run_copy.start_data
    run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
    engine.attach_sinks(run)
    journal = JournalWriter(
        run.run_id,
        0,
        engine.committer,
        # Stored as running: if the process ends before rebuild_run(), recovery resumes the fork.
        lambda at: engine.run_row(run, WorkflowState.RUNNING, None, start, at),
        lambda rows: engine.publish(run, rows),
        ignore_write_error,
    )
    journal.attach_definition(engine.definition_of(run.workflow))
    journal.mark_row_dirty()
    journal.append("workflow_started", "", encode_json(start, max_depth=MAX_EVENT_DEPTH))
    journal.attach_reply(reply)
    for copied_row in run_copy.rows:
        journal.append(copied_row.type, copied_row.path, copied_row.data, copied_row.settles)
    return journal.wait_durable(journal.seq)


def unknown_outcome_fields(rows: Iterable[JournalRow], fork_point: ForkPoint) -> dict[str, list[str]]:
    """Return the leaves with an unknown outcome, except those the fork runs again by request."""
    unknown_paths = sorted(
        path for path in unknown_outcomes(rows) if step_of_attempt(path) not in fork_point.paths
    )
    return {"unclear": unknown_paths} if unknown_paths else {}


def fork_limits(rows: list[EventRow], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a run and its steps, as raised before and now."""
    run_limits, steps = split_step_limits(limits)
    limits_by_step = raised_step_limits(rows)
    for path, step_limits in steps.items():
        limits_by_step[path] = {**limits_by_step.get(path, {}), **step_limits}
    fields: dict[str, Any] = {"limits": limits_of_run(rows).with_raised(run_limits).to_dict()}
    return fields | ({"raised": limits_by_step} if limits_by_step else {})


def fork_metadata(start: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata a fork shares with its source, so that it receives the same signals."""
    return {name: start[name] for name in START_METADATA if name in start}


def open_child_id(row: EventRow, rows: Iterable[EventRow]) -> str | None:
    """Return the child run that a row started, if it has no recorded outcome."""
    settled = any(other.settles and other.path == row.path for other in rows)
    return None if settled else str(decode_json(row.data)["child"])


def with_child_id(row: EventRow, old_id: str, new_id: str) -> EventRow:
    """Return the start of a child run under the id it has in the fork."""
    return row._replace(data=row.data.replace(f'"child":"{old_id}"', f'"child":"{new_id}"', 1))
