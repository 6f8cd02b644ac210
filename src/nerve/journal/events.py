"""Encode events for the journal, and derive the state of a run from its rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nerve.core.events import JournalRow
from nerve.core.json_codec import decode_json, encode_json, is_scalar_json
from nerve.core.limits import Limits, RunUsage, split_step_limits
from nerve.core.nodes.base import Role
from nerve.core.result import Result, Settlement, restore_results
from nerve.core.runtime import NodeCall
from nerve.core.workflow.state import FINAL_STATES
from nerve.errors import JournalBroken, NotJson
from nerve.journal.replay import (
    ABANDON_EVENTS,
    CONTROL_PREFIX,
    OPENING_EVENTS,
    ROOT_PATH,
    is_child_start,
    is_within_step,
)
from nerve.store.port import EventRow as StoredRow
from nerve.store.port import RunRow, Store

log = logging.getLogger("nerve")

START_METADATA = ("label", "branch", "conversation", "modules")
"""Metadata a run may have besides its input; recorded with its start."""
FINAL_STATE_VALUES = frozenset(state.value for state in FINAL_STATES)
WAIT_EVENTS = OPENING_EVENTS - {"node_started", "step_started"}
_SETTLED_BY_EVENT: dict[str, Settlement] = {"node_error": "error", "node_timeout": "timeout"}
_EVENT_BY_SETTLED = {"error": "node_error", "timeout": "node_timeout", "completed": "node_completed"}


def read_intact(store: Store, run_id: str) -> list[StoredRow]:
    """Return the events of a run, or none if its journal is damaged, so that sums over runs still work."""
    try:
        return store.events(run_id)
    except JournalBroken as error:
        log.warning("skipped a damaged journal: %s", error)
        return []


def compare_run_row(row: RunRow, first: StoredRow, last: StoredRow) -> Iterator[str]:
    """Yield the differences between the row of a run and the first and last event of its journal."""
    start = decode_json(first.data)
    journal_values = {"run": start.get("run_id"), "workflow": start.get("workflow_id")}
    journal_values |= {
        name: start.get(name) for name in ("session", "key", "parent", "conversation", "label")
    }
    ended = last.type.removeprefix("workflow_") if last.settles == ROOT_PATH else None
    if ended is not None or row.state in FINAL_STATE_VALUES:
        journal_values["state"] = ended or "open"
    for name, value in journal_values.items():
        if (row_value := getattr(row, name)) != value:
            yield f"its row in the runs table has {name} {row_value!r}, but its journal has {value!r}"


@lru_cache(10_000)
def cached_json(name: str) -> str:
    """Return the JSON of a name, cached because names repeat."""
    return encode_json(name)


def encode_call_started(call: NodeCall, role: Role, text: str, digest: str, extra: str = "") -> str:
    """Return the data of the event that starts a call; `text` is the JSON of its input."""
    # Built by hand: this runs for every step. Markers precede "hash", so readers can test for them without
    # decoding the input; see is_child_start().
    control = CONTROL_PREFIX + "," if role == "control" else "{"
    step = f'"step_id":{cached_json(call.path.rsplit("/", 1)[-1])},' if call.is_graph_step else ""
    return f'{control}"node_id":{cached_json(call.node_id)},{step}{extra}"hash":"{digest}","input":{text}}}'


def encode_call_ended(call: NodeCall, result: Result, seconds: float) -> tuple[str, str, Result]:
    """Return type and data of the event that settles a call, and its result as it will be read back."""
    try:
        text, stored_result = encode_result(result)
    # A result that cannot be stored fails the step: replay could not return it.
    except NotJson as error:
        text, stored_result = encode_result(Result.from_exception(error))
    step = f'"step_id":{cached_json(call.path.rsplit("/", 1)[-1])},' if call.is_graph_step else ""
    node_json, timing_json = cached_json(call.node_id), f'"duration_ms":{seconds * 1000:.3f},{step}'
    if stored_result["success"]:
        data = f'{{"node_id":{node_json},"success":true,{timing_json}"result":{text}}}'
        return (
            "step_completed" if call.is_graph_step else _EVENT_BY_SETTLED[stored_result.settlement],
            data,
            stored_result,
        )
    failure_json = encode_failure(stored_result)
    data = f'{{"node_id":{node_json},"success":false,{timing_json}{failure_json}"result":{text}}}'
    return (
        "step_failed" if call.is_graph_step else _EVENT_BY_SETTLED[stored_result.settlement],
        data,
        stored_result,
    )


def encode_result(result: Result) -> tuple[str, Result]:
    """Return the JSON of a result, and the result as it will be read back; a scalar one is unchanged."""
    output = result["output"]
    if is_scalar_json(output) and not result["attributes"] and len(result) == 3 and result["success"] is True:
        try:
            return f'{{"success":true,"output":{encode_json(output)},"attributes":{{}}}}', result
        except NotJson:
            pass  # encoded again below, where the error names the position
    text = encode_json(result)
    # Read back, so the body sees the same value now as on replay (tuples become lists, keys become
    # strings).
    return text, restore_result(decode_json(text), text).with_settlement(result)


def restore_result(value: dict[str, Any], text: str) -> Result:
    """Return a decoded result; nested Results occur only in those of control nodes."""
    result: Result = restore_results(value) if text.count('"attributes":') > 1 else Result(value)
    return result


def encode_failure(result: Result) -> str:
    """Return the fields that describe why a call failed."""
    text = f'"error":{encode_json(result.error)},"error_type":{cached_json(result.error_type)},'
    if result.settlement == "timeout":
        text += f'"timeout":{encode_json(result.timeout_seconds)},'
    return text


def result_from_row(row: JournalRow) -> Result:
    """Return the result in a settling event."""
    result = restore_result(decode_json(row.data)["result"], row.data)
    result.settlement = _SETTLED_BY_EVENT.get(row.type, "completed")
    return result


def outcome_from_row(row: JournalRow) -> Any:
    """Return the outcome for the body: a result, an answer, or a timeout."""
    if row.type in ("gate_timeout", "signal_timeout"):
        return wait_timeout_error(row.type.removesuffix("_timeout"), decode_json(row.data).get("timeout"))
    if row.type in ("timer_fired", "node_cancelled"):
        return None
    if row.type in ("gate_answered", "signal_received"):
        data = decode_json(row.data)
        return data.get("answer", data.get("value"))
    return result_from_row(row)


def wait_timeout_error(kind: str, seconds: float | None) -> TimeoutError:
    """Return the error for a gate or a signal that timed out."""
    return TimeoutError(f"{kind} timed out" + (f" after {seconds:g} s" if seconds is not None else ""))


def load_start_data(rows: Sequence[JournalRow]) -> dict[str, Any]:
    """Return the start data of a run, with the definition it uses now."""
    start: dict[str, Any] = decode_json(rows[0].data)
    for row in rows:
        if row.type == "workflow_changed":
            start["definition"] = decode_json(row.data)["definition"]
    return start


def find_resets(rows: Iterable[JournalRow]) -> list[tuple[str, int]]:
    """Return the paths that were reset, with the sequence numbers of the resets."""
    return [(row.path, row.seq) for row in rows if row.type == "path_reset"]


def call_key(path: str, resets: Sequence[tuple[str, int]]) -> str:
    """Return the key that child run ids derive from: the path of the call, and its last reset."""
    # A reset asks for another child run. Without the reset in the key, the old child's result would be
    # found.
    for reset_path, seq in reversed(resets):
        if is_within_step(path, reset_path):
            return f"{path}#{seq}"
    return path


def settle_key(path: str, resets: Sequence[tuple[str, int]]) -> str:
    """Return the settle key of a path: it settles once, and once more after each reset in or around it."""
    # The store enforces that a key settles once. A reset inside a step reopens the step, so it needs a new
    # key.
    for reset_path, seq in reversed(resets):
        if is_within_step(path, reset_path) or reset_path.startswith(f"{path}/"):
            return f"{path}#{seq}"
    return path


def origin_ids(start: Mapping[str, Any]) -> list[str]:
    """Return the ids of the runs a fork derives from, oldest first, and its own; empty if not a fork."""
    previous_ids: list[str] = (start.get("forked_from") or {}).get("origins", [])
    return [*previous_ids, start["run_id"]] if previous_ids else []


def copied_event_count(start: Mapping[str, Any]) -> int:
    """Return the number of events copied at the start of a run, including its own first one."""
    return int((start.get("forked_from") or {}).get("copied", 0))


def usage_of_rows(rows: Sequence[JournalRow]) -> RunUsage:
    """Return the usage of a run by its journal; copied events were paid for by their own run."""
    usage = RunUsage()
    control_paths: set[str] = set()
    copied_until = copied_event_count(decode_json(rows[0].data)) if rows else 0
    for row in rows:
        if row.type in OPENING_EVENTS and row.data.startswith(CONTROL_PREFIX):
            control_paths.add(row.path)
        elif row.type in ("node_started", "step_started"):
            usage.steps += 1
        elif row.type in ("loop_iteration", "state_entered"):
            usage.iterations += 1
        elif row.settles and row.path not in control_paths:
            # Substring first: most rows are successes, and decoding every one would dominate the time to
            # load a run.
            if '"success":false' in row.data and decode_json(row.data).get("success") is False:
                usage.errors += 1
            if row.seq > copied_until and '"usage"' in row.data:
                usage.spend(decode_json(row.data).get("result", {}).get("attributes", {}).get("usage"))
        elif row.type == "child_stopped" and row.seq > copied_until:
            usage.spend(decode_json(row.data)["usage"])
    return usage


@dataclass(slots=True)
class ChildCalls:
    """The calls of child runs without a recorded outcome: keys of the runs by path of the call."""

    open_calls: dict[str, str] = field(default_factory=dict)
    replaced_calls: list[tuple[str, str]] = field(default_factory=list)
    """Calls that were reset: another run is requested instead, or none."""
    counted_runs: set[str] = field(default_factory=set)
    """The runs whose usage is recorded."""


def find_child_calls(rows: Iterable[JournalRow]) -> ChildCalls:
    """Return the calls of child runs in a journal."""
    calls, resets = ChildCalls(), list[tuple[str, int]]()
    for row in rows:
        if is_child_start(row):
            # With the resets so far, not all of them: a child keeps the id it had when it was called.
            calls.open_calls[row.path] = call_key(row.path, resets)
        elif row.settles:
            calls.open_calls.pop(row.path, None)
        elif row.type == "child_stopped":
            calls.counted_runs.add(decode_json(row.data)["run_id"])
        elif row.type == "path_reset":
            resets.append((row.path, row.seq))
            reset_calls = [path for path in calls.open_calls if is_within_step(path, row.path)]
            calls.replaced_calls += [(path, calls.open_calls.pop(path)) for path in reset_calls]
    return calls


def usage_in_progress(rows: Iterable[JournalRow]) -> dict[str, Mapping[str, Any]]:
    """Return the usage agents have recorded in steps that have not ended, by path."""
    usage_by_path: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row.type == "agent_thread":
            usage_by_path[row.path] = decode_json(row.data).get("usage") or {}
        elif row.settles or row.type in OPENING_EVENTS:
            usage_by_path.pop(row.path, None)
    return usage_by_path


def active_seconds(rows: Iterable[JournalRow]) -> float:
    """Return the seconds a run has been active: not waiting, not paused, and not out of a process."""
    seconds, previous_at = 0.0, 0.0
    is_paused, waiting_paths = False, set[str]()
    for row in rows:
        # Before a recovery row the process was down for an unknown time, which does not count.
        is_active = not (is_paused or waiting_paths or row.seq == 1 or is_recovery_row(row))
        seconds += max(0.0, row.at - previous_at) if is_active else 0.0
        previous_at = row.at
        if row.type in ("workflow_paused", "workflow_held", "workflow_resumed"):
            is_paused = row.type != "workflow_resumed"
        elif is_child_start(row) or opens_wait(row):
            waiting_paths.add(row.path)
        elif row.settles or row.type in ABANDON_EVENTS:
            waiting_paths.discard(row.path)
        elif row.type == "path_reset":
            waiting_paths = {path for path in waiting_paths if not is_within_step(path, row.path)}
    return seconds


def opens_wait(row: JournalRow) -> bool:
    """Whether a row opens a wait for a person, a fact or a timer; a timeout is not one."""
    return row.type in WAIT_EVENTS and not (row.type == "timer_started" and '"guard":true' in row.data)


def is_recovery_row(row: JournalRow) -> bool:
    """Whether a row says that a step runs again after its process ended."""
    return row.type == "node_retrying" and '"recovered":true' in row.data


def resume_event_data(run_id: str, limits: Mapping[str, Any], with_changes: bool = False) -> dict[str, Any]:
    """Return the data of `workflow_resumed`."""
    data: dict[str, Any] = {"run_id": run_id}
    if limits:
        data["limits"] = dict(limits)
    if with_changes:
        data["with_changes"] = True
    return data


def limits_of_run(rows: Sequence[JournalRow]) -> Limits:
    """Return the limits of a run, including raised ones."""
    limits = Limits.from_recorded(decode_json(rows[0].data).get("limits")) if rows else Limits()
    for row in rows:
        if row.type == "workflow_resumed":
            limits = limits.with_raised(split_step_limits(decode_json(row.data).get("limits", {}))[0])
    return limits


def raised_step_limits(rows: Iterable[JournalRow]) -> dict[str, dict[str, Any]]:
    """Return the raised budgets of steps, by path."""
    limits_by_step: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.type == "workflow_started" and '"raised"' in row.data:
            limits_by_step |= decode_json(row.data).get("raised", {})
        if row.type == "workflow_resumed" and '"limits"' in row.data:
            for path, step_limits in split_step_limits(decode_json(row.data)["limits"])[1].items():
                limits_by_step[path] = {**limits_by_step.get(path, {}), **step_limits}
    return limits_by_step


def step_of_attempt(path: str) -> str:
    """Return the step that a leaf is an attempt of; further attempts have a `~` suffix."""
    parent_path, slash, name = path.rpartition("/")
    return parent_path + slash + name.partition("~")[0]


def optional_until(rows: Sequence[JournalRow]) -> int:
    """Return the last event that is optional: copied by a fork, or older than accepted code changes."""
    accepted = (row.seq for row in rows if row.type == "workflow_resumed" and "with_changes" in row.data)
    return max(copied_event_count(decode_json(rows[0].data)), *accepted, 0)
