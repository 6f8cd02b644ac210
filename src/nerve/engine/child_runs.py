"""The child runs of a run, as far as the journals know them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from nerve.core.nodes.context import numbered_path
from nerve.core.workflow.run import WorkflowRun
from nerve.engine.run_chain import find_current_row, iterate_chain
from nerve.journal.events import CallSettled, decode_event, outcome_of
from nerve.journal.index import JournalIndex, read_start
from nerve.store.port import EventRow, RunRow, Store


def child_id(parent: str, path: str, attempt: int = 1) -> str:
    """Return the id of a child run: deterministic, so that a crash never starts a second one."""
    from uuid import NAMESPACE_OID, uuid5  # imported here: it takes milliseconds, and few runs need it

    suffix = f"~{attempt}" if attempt > 1 else ""
    return str(uuid5(NAMESPACE_OID, f"{parent}{path}{suffix}"))


def attempt_timer_path(path: str, attempt: int) -> str:
    """Return the path of the timer that bounds an attempt at a child run."""
    return numbered_path(f"{path}/~timeout", attempt)


def find_interrupted_step(store: Store, run_id: str) -> str | None:
    """Return the first effect="once" step of a run or its children whose outcome is unknown.

    Of a chain, only the current run is read: the others have ended by their own decision.
    """
    index = JournalIndex(store.events(run_id))
    for path, call in index.children.started:
        if call.child is None:
            if path in index.unknown_outcomes:
                return path
            continue
        inner = (
            find_interrupted_step(store, find_current_row(store, attempt_row).run)
            for attempt_row in find_child_attempts(store, run_id, index.resets.call_key(path))
        )
        if (step_path := next(filter(None, inner), None)) is not None:
            return path + step_path
    return None


def find_shared_files(store: Store, run_id: str) -> dict[str, Any] | None:
    """Return the files of the caller's workspace before and after the steps of a run called in it."""
    current: str | None = run_id
    while current is not None:
        records = [each for _, each in iterate_recorded_files(store.events(current)) if "run" in each]
        if records:
            return {
                "before": records[0]["before"],
                "after": records[-1]["after"],
                "tree": records[-1]["tree"],
            }
        current = read_start(store, current).previous_run
    return None


def iterate_recorded_files(rows: Iterable[EventRow]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what steps have recorded about the files of their workspaces, with their paths, in order."""
    for row in rows:
        event = decode_event(row) if row.settles is not None else None
        if isinstance(event, CallSettled) and (files := outcome_of(event).attributes.get("workspace")):
            yield row.path, files


def find_child_attempts(store: Store, run_id: str, key: str) -> list[RunRow]:
    """Return the child runs of a call by its key, first attempt first; of a chain, the first run."""
    rows: list[RunRow] = []
    while (row := store.run(child_id(run_id, key, len(rows) + 1))) is not None:
        rows.append(row)
    return rows


def find_unsettled_children(
    store: Store, run_id: str, rows: Sequence[EventRow] | None = None
) -> list[RunRow]:
    """Return the child runs a run has called without a recorded outcome; of a chain, the current run.

    Includes all attempts, abandoned ones, and those the code no longer requests. With `rows`, the run has
    only these events.
    """
    keys = JournalIndex(store.events(run_id) if rows is None else rows).children.unsettled_keys
    children = [row for key in keys for row in find_child_attempts(store, run_id, key)]
    return [find_current_row(store, row) for row in children]


def has_asked_person(store: Store, run_id: str) -> bool:
    """Whether a run, a later run of its chain, or a child of them has opened a gate."""
    first = store.run(run_id)
    for row in iterate_chain(store, first) if first is not None else ():
        index = JournalIndex(store.events(row.run))
        children = (call.child for _, call in index.children.started if call.child is not None)
        if index.has_gate or any(has_asked_person(store, child) for child in children):
            return True
    return False


def find_open_children(
    store: Store, run_handle: Callable[[RunRow], WorkflowRun], run_id: str, index: JournalIndex
) -> dict[str, WorkflowRun]:
    """Return the open children of a run, by the paths of their calls."""
    attempts_by_path = {
        path: find_child_attempts(store, run_id, index.resets.call_key(path))
        for path in index.open_child_paths
    }
    last = {
        path: run_handle(find_current_row(store, rows[-1])) for path, rows in attempts_by_path.items() if rows
    }
    return {path: child for path, child in last.items() if not child.is_complete}
