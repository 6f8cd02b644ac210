"""Readings of a journal written down as simply as possible, each a loop over plain rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nerve.core.limits import Limits, RunUsage, split_step_limits
from nerve.store.port import EventRow

OPENING = ("node_started", "step_started", "gate_waiting", "timer_started", "signal_waiting")
ABANDONING = ("node_cancelled", "gate_cancelled", "timer_cancelled", "signal_cancelled")
Rows = Sequence[EventRow]


def data_of(row: EventRow) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(row.data)
    return data


def is_at(path: str, step: str) -> bool:
    return path == step or path.startswith((f"{step}/", f"{step}~"))


def is_start(row: EventRow) -> bool:
    return row.type in ("node_started", "step_started")


def is_child(row: EventRow) -> bool:
    return is_start(row) and "child" in data_of(row)


def is_leaf(row: EventRow) -> bool:
    return is_start(row) and not is_child(row) and not data_of(row).get("control")


def copied(rows: Rows) -> int:
    return int((data_of(rows[0]).get("forked_from") or {}).get("copied", 0))


def start_data(rows: Rows) -> dict[str, Any]:
    changed = [data_of(row)["definition"] for row in rows if row.type == "workflow_changed"]
    return {**data_of(rows[0]), **({"definition": changed[-1]} if changed else {})}


def resets(rows: Rows) -> list[tuple[str, int]]:
    return [(row.path, row.seq) for row in rows if row.type == "path_reset"]


def call_key(path: str, rows: Rows) -> str:
    seqs = [seq for reset, seq in resets(rows) if is_at(path, reset)]
    return f"{path}#{seqs[-1]}" if seqs else path


def settle_key(path: str, rows: Rows) -> str:
    seqs = [seq for reset, seq in resets(rows) if is_at(path, reset) or reset.startswith(f"{path}/")]
    return f"{path}#{seqs[-1]}" if seqs else path


def limits(rows: Rows) -> Limits:
    found = Limits.from_recorded(data_of(rows[0]).get("limits"))
    for row in rows:
        if row.type == "workflow_resumed":
            found = found.with_raised(split_step_limits(data_of(row).get("limits", {}))[0])
    return found


def step_limits(rows: Rows) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = dict(data_of(rows[0]).get("raised", {}))
    for row in rows:
        if row.type == "workflow_resumed":
            for path, raised in split_step_limits(data_of(row).get("limits", {}))[1].items():
                found[path] = {**found.get(path, {}), **raised}
    return found


def usage(rows: Rows) -> RunUsage:
    found = RunUsage()
    for row in rows:
        data = data_of(row)
        is_control = any(
            is_start(other) and other.path == row.path and data_of(other).get("control")
            for other in rows[: row.seq]
        )
        if is_start(row) and not data.get("control"):
            found.steps += 1
        if row.type in ("loop_iteration", "state_entered"):
            found.iterations += 1
        if row.settles not in (None, "/") and not is_control:
            if row.type.startswith(("node_", "step_")):
                found.errors += data.get("success") is False
            if row.seq > copied(rows) and isinstance(data.get("result"), dict):
                found.spend(data["result"]["attributes"].get("usage"))
        if row.type == "child_stopped" and row.seq > copied(rows):
            found.spend(data["usage"])
    return found


def usage_in_progress(rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in rows:
        if row.type == "agent_thread":
            found[row.path] = data_of(row).get("usage") or {}
        elif row.settles or row.type in OPENING:
            found.pop(row.path, None)
    return found


def unsettled(rows: Rows) -> dict[str, int]:
    """Return the events of calls and waits that are not settled, by path."""
    found: dict[str, int] = {}
    for row in rows:
        if row.type in OPENING:
            found.pop(row.path, None) if row.path not in found else None
            found[row.path] = row.seq
        elif row.settles == "/":
            found = {}
        elif row.settles:
            found.pop(row.path, None)
        elif row.type == "path_reset":
            found = {path: seq for path, seq in found.items() if not is_at(path, row.path)}
    return found


def open_waits(rows: Rows) -> dict[str, int]:
    unsettled_events = unsettled(rows)
    leaves = {path for path, seq in unsettled_events.items() if is_leaf(rows[seq - 1])}
    return {
        path: seq
        for path, seq in unsettled_events.items()
        if not is_start(rows[seq - 1]) and not any(path.startswith(f"{leaf}/") for leaf in leaves)
    }


def unknown_outcomes(rows: Rows) -> set[str]:
    found = set((data_of(rows[0]).get("forked_from") or {}).get("unclear", ()))
    for row in rows:
        if row.type == "node_retrying":
            (found.discard if data_of(row).get("again") else found.add)(row.path)
        elif is_leaf(row):
            found.add(row.path)
        elif row.settles and row.type not in ABANDONING:
            found.discard(row.path)
    return found


def open_child_calls(rows: Rows) -> tuple[dict[str, str], list[tuple[str, str]], set[str]]:
    """Return the open calls, the replaced calls, and the runs whose usage is recorded."""
    found: dict[str, str] = {}
    replaced: list[tuple[str, str]] = []
    counted: set[str] = set()
    for row in rows:
        if is_child(row):
            found[row.path] = call_key(row.path, rows[: row.seq])
        elif row.settles:
            found.pop(row.path, None)
        elif row.type == "child_stopped":
            counted.add(data_of(row)["run_id"])
        elif row.type == "path_reset":
            replaced += [(path, key) for path, key in found.items() if is_at(path, row.path)]
            found = {path: key for path, key in found.items() if not is_at(path, row.path)}
    return found, replaced, counted


def unsettled_child_keys(rows: Rows) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        if is_child(row):
            found[call_key(row.path, rows[: row.seq])] = None
        elif row.settles and row.type not in ABANDONING:
            found.pop(call_key(row.path, rows[: row.seq]), None)
    return list(found)


def active_seconds(rows: Rows) -> float:
    seconds, previous_at, is_paused, waits = 0.0, 0.0, False, set[str]()
    for row in rows:
        data = data_of(row)
        is_recovery = row.type == "node_retrying" and data.get("recovered")
        if not (is_paused or waits or row.seq == 1 or is_recovery):
            seconds += max(0.0, row.at - previous_at)
        previous_at = row.at
        if row.type in ("workflow_paused", "workflow_held", "workflow_resumed"):
            is_paused = row.type != "workflow_resumed"
        elif is_child(row) or (row.type in OPENING[2:] and not data.get("guard")):
            waits.add(row.path)
        elif row.settles or row.type in ABANDONING:
            waits.discard(row.path)
        elif row.type == "path_reset":
            waits = {path for path in waits if not is_at(path, row.path)}
    return seconds


def optional_until(rows: Rows) -> int:
    accepted = [
        row.seq for row in rows if row.type == "workflow_resumed" and data_of(row).get("with_changes")
    ]
    return max([copied(rows), *accepted])


def since_start(rows: Rows, path: str, type: str) -> list[dict[str, Any]]:
    """Return the data of the events of a type at a path since the step there started."""
    starts = [row.seq for row in rows if row.path == path and row.type in OPENING]
    after = starts[-1] if starts else 0
    return [data_of(row) for row in rows if row.seq > after and row.path == path and row.type == type]


def decisions(rows: Rows) -> dict[str, Any]:
    holds = [row.seq for row in rows if row.type == "workflow_held"]
    later = rows[holds[-1] :] if holds else rows
    return {row.path: data_of(row) for row in later if "decided" in data_of(row)}
