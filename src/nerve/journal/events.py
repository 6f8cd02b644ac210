"""Records: how what happens is written into the journal, and read back."""

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
"""What a run may be given beside its input; it is recorded with its start."""
FINAL_STATE_VALUES = frozenset(state.value for state in FINAL_STATES)
WAIT_EVENTS = OPENING_EVENTS - {"node_started", "step_started"}
_SETTLED_BY_EVENT: dict[str, Settlement] = {"node_error": "error", "node_timeout": "timeout"}
_EVENT_BY_SETTLED = {"error": "node_error", "timeout": "node_timeout", "completed": "node_completed"}


def read_intact(store: Store, run_id: str) -> list[StoredRow]:
    """Return the events of one of many runs; none if its journal is damaged, so that the others count."""
    try:
        return store.events(run_id)
    except JournalBroken as error:
        log.warning("left out a damaged journal: %s", error)
        return []


def compare_run_row(row: RunRow, first: StoredRow, last: StoredRow) -> Iterator[str]:
    """Yield what the row of a run says otherwise than the first and the last event of its journal."""
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
            yield f"its row in the table of runs has {name} {row_value!r}, and its journal {value!r}"


@lru_cache(10_000)
def cached_json(name: str) -> str:
    """The JSON text of a name; names repeat, so they are kept."""
    return encode_json(name)


def encode_call_started(call: NodeCall, role: Role, text: str, digest: str, extra: str = "") -> str:
    """The data of the event that a call has started; `text` is the JSON of its input."""
    control = CONTROL_PREFIX + "," if role == "control" else "{"
    step = f'"step_id":{cached_json(call.path.rsplit("/", 1)[-1])},' if call.is_graph_step else ""
    return f'{control}"node_id":{cached_json(call.node_id)},{step}{extra}"hash":"{digest}","input":{text}}}'


def encode_call_ended(call: NodeCall, result: Result, seconds: float) -> tuple[str, str, Result]:
    """Name and data of the event that settles a call, and its result as it will be read back."""
    try:
        text, stored_result = encode_result(result)
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
    """The JSON of a result, and the result as it will be read back; a plain one stays what it is."""
    output = result["output"]
    if is_scalar_json(output) and not result["attributes"] and len(result) == 3 and result["success"] is True:
        try:
            return f'{{"success":true,"output":{encode_json(output)},"attributes":{{}}}}', result
        except NotJson:
            pass  # said below with its place
    text = encode_json(result)
    return text, restore_result(decode_json(text), text).with_settlement(result)


def restore_result(value: dict[str, Any], text: str) -> Result:
    """A result that was read from a text, and the Results in it, which only control nodes give."""
    result: Result = restore_results(value) if text.count('"attributes":') > 1 else Result(value)
    return result


def encode_failure(result: Result) -> str:
    """Why a call failed, as its event says it."""
    text = f'"error":{encode_json(result.error)},"error_type":{cached_json(result.error_type)},'
    if result.settlement == "timeout":
        text += f'"timeout":{encode_json(result.timeout_seconds)},'
    return text


def result_from_row(row: JournalRow) -> Result:
    """The result that a settling event carries."""
    result = restore_result(decode_json(row.data)["result"], row.data)
    result.settlement = _SETTLED_BY_EVENT.get(row.type, "completed")
    return result


def outcome_from_row(row: JournalRow) -> Any:
    """What the body is told: a result, an answer, or that the time ran out."""
    if row.type in ("gate_timeout", "signal_timeout"):
        return wait_timeout_error(row.type.removesuffix("_timeout"), decode_json(row.data).get("timeout"))
    if row.type in ("timer_fired", "node_cancelled"):
        return None
    if row.type in ("gate_answered", "signal_received"):
        data = decode_json(row.data)
        return data.get("answer", data.get("value"))
    return result_from_row(row)


def wait_timeout_error(kind: str, seconds: float | None) -> TimeoutError:
    """What a body is told when the time of a gate or a signal has run out."""
    return TimeoutError(f"{kind} timed out" + (f" after {seconds:g} s" if seconds is not None else ""))


def load_start_data(rows: Sequence[JournalRow]) -> dict[str, Any]:
    """What a run was started with, and the definition that it goes on with."""
    start: dict[str, Any] = decode_json(rows[0].data)
    for row in rows:
        if row.type == "workflow_changed":
            start["definition"] = decode_json(row.data)["definition"]
    return start


def find_resets(rows: Iterable[JournalRow]) -> list[tuple[str, int]]:
    return [(row.path, row.seq) for row in rows if row.type == "path_reset"]


def call_key(path: str, resets: Sequence[tuple[str, int]]) -> str:
    """What a child run is called after: the place of the call, and its last reset."""
    for reset_path, seq in reversed(resets):
        if is_within_step(path, reset_path):
            return f"{path}#{seq}"
    return path


def settle_key(path: str, resets: Sequence[tuple[str, int]]) -> str:
    """A path settles once, and once more after each reset of it, or of something in it."""
    for reset_path, seq in reversed(resets):
        if is_within_step(path, reset_path) or reset_path.startswith(f"{path}/"):
            return f"{path}#{seq}"
    return path


def origin_ids(start: Mapping[str, Any]) -> list[str]:
    """The ids of the runs that a fork was made of, the first one first, and its own; of others, none."""
    previous_ids: list[str] = (start.get("forked_from") or {}).get("origins", [])
    return [*previous_ids, start["run_id"]] if previous_ids else []


def copied_event_count(start: Mapping[str, Any]) -> int:
    """How many events a run began with that are another's; its own first one is among them."""
    return int((start.get("forked_from") or {}).get("copied", 0))


def usage_of_rows(rows: Sequence[JournalRow]) -> RunUsage:
    """What the run had used when it was last seen; what it took over was spent by another."""
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
            if '"success":false' in row.data and decode_json(row.data).get("success") is False:
                usage.errors += 1
            if row.seq > copied_until and '"usage"' in row.data:
                usage.spend(decode_json(row.data).get("result", {}).get("attributes", {}).get("usage"))
        elif row.type == "child_stopped" and row.seq > copied_until:
            usage.spend(decode_json(row.data)["usage"])
    return usage


@dataclass(slots=True)
class ChildCalls:
    """The calls of child runs that were not heard from, by their paths and what the runs are called after."""

    open_calls: dict[str, str] = field(default_factory=dict)
    replaced_calls: list[tuple[str, str]] = field(default_factory=list)
    """Those that do not count any more: another run is asked for instead, or none."""
    counted_runs: set[str] = field(default_factory=set)
    """The runs of which it was noted what they took."""


def find_child_calls(rows: Iterable[JournalRow]) -> ChildCalls:
    """What a journal has of child runs."""
    calls, resets = ChildCalls(), list[tuple[str, int]]()
    for row in rows:
        if is_child_start(row):
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
    """What agents noted of what they took, in steps that are not over, by their paths."""
    usage_by_path: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row.type == "agent_thread":
            usage_by_path[row.path] = decode_json(row.data).get("usage") or {}
        elif row.settles or row.type in OPENING_EVENTS:
            usage_by_path.pop(row.path, None)
    return usage_by_path


def active_seconds(rows: Iterable[JournalRow]) -> float:
    """Seconds that a run is known to have run: not while it waited, for a child too, or nobody drove it."""
    seconds, previous_at = 0.0, 0.0
    is_paused, waiting_paths = False, set[str]()
    for row in rows:
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
    """Whether a row says that a run waits for a person, a fact or a time; a bound on time is none."""
    return row.type in WAIT_EVENTS and not (row.type == "timer_started" and '"guard":true' in row.data)


def is_recovery_row(row: JournalRow) -> bool:
    """Whether a row says that a step goes on which another process had begun."""
    return row.type == "node_retrying" and '"recovered":true' in row.data


def resume_event_data(run_id: str, limits: Mapping[str, Any], with_changes: bool = False) -> dict[str, Any]:
    """The data of `workflow_resumed`."""
    data: dict[str, Any] = {"run_id": run_id}
    if limits:
        data["limits"] = dict(limits)
    if with_changes:
        data["with_changes"] = True
    return data


def limits_of_run(rows: Sequence[JournalRow]) -> Limits:
    """The limits a run was started with, as they were raised since."""
    limits = Limits.from_recorded(decode_json(rows[0].data).get("limits")) if rows else Limits()
    for row in rows:
        if row.type == "workflow_resumed":
            limits = limits.with_raised(split_step_limits(decode_json(row.data).get("limits", {}))[0])
    return limits


def raised_step_limits(rows: Iterable[JournalRow]) -> dict[str, dict[str, Any]]:
    """What the budgets of steps were raised to, by their paths."""
    limits_by_step: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.type == "workflow_started" and '"raised"' in row.data:
            limits_by_step |= decode_json(row.data).get("raised", {})
        if row.type == "workflow_resumed" and '"limits"' in row.data:
            for path, more in split_step_limits(decode_json(row.data)["limits"])[1].items():
                limits_by_step[path] = {**limits_by_step.get(path, {}), **more}
    return limits_by_step


def step_of_attempt(path: str) -> str:
    """The step that a leaf is an attempt of: one that is made again stands beside the first."""
    parent_path, slash, name = path.rpartition("/")
    return parent_path + slash + name.partition("~")[0]


def optional_until(rows: Sequence[JournalRow]) -> int:
    """Up to which event the journal is an offer only: copied by a fork, or older than changed code."""
    accepted = (row.seq for row in rows if row.type == "workflow_resumed" and "with_changes" in row.data)
    return max(copied_event_count(decode_json(rows[0].data)), *accepted, 0)
