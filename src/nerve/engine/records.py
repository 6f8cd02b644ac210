"""Records: how what happens is written into the journal, and read back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nerve.core.limits import Limits, Usage, raised
from nerve.core.nodes.base import Role
from nerve.core.result import Result, Settled, revived
from nerve.core.runtime import Call
from nerve.core.values import decode, encode, is_plain
from nerve.core.workflow.replay import ASKS, CONTROL, DROPS, ROOT, Row, is_child, within
from nerve.core.workflow.state import FINAL
from nerve.errors import JournalBroken, NotJson
from nerve.store.port import Row as StoredRow
from nerve.store.port import RunRow, Store

log = logging.getLogger("nerve")

ABOUT = ("label", "branch", "conversation", "modules")
"""What a run may be given beside its input; it is recorded with its start."""
ENDED = frozenset(state.value for state in FINAL)
WAITS = ASKS - {"node_started", "step_started"}
_SETTLED: dict[str, Settled] = {"node_error": "error", "node_timeout": "timeout"}
_TYPES = {"error": "node_error", "timeout": "node_timeout", "completed": "node_completed"}


def read_intact(store: Store, run_id: str) -> list[StoredRow]:
    """Return the events of one of many runs; none if its journal is damaged, so that the others count."""
    try:
        return store.events(run_id)
    except JournalBroken as error:
        log.warning("left out a damaged journal: %s", error)
        return []


def compare_row(row: RunRow, first: StoredRow, last: StoredRow) -> Iterator[str]:
    """Yield what the row of a run says otherwise than the first and the last event of its journal."""
    start = decode(first.data)
    said = {"run": start.get("run_id"), "workflow": start.get("workflow_id")}
    said |= {name: start.get(name) for name in ("session", "key", "parent", "conversation", "label")}
    ended = last.type.removeprefix("workflow_") if last.settles == ROOT else None
    if ended is not None or row.state in ENDED:
        said["state"] = ended or "open"
    for name, value in said.items():
        if (found := getattr(row, name)) != value:
            yield f"its row in the table of runs has {name} {found!r}, and its journal {value!r}"


@lru_cache(10_000)
def quote(name: str) -> str:
    """The JSON text of a name; names repeat, so they are kept."""
    return encode(name)


def started(call: Call, role: Role, text: str, digest: str, extra: str = "") -> str:
    """The data of the event that a call has started; `text` is the JSON of its input."""
    control = CONTROL + "," if role == "control" else "{"
    step = f'"step_id":{quote(call.path.rsplit("/", 1)[-1])},' if call.step else ""
    return f'{control}"node_id":{quote(call.node_id)},{step}{extra}"hash":"{digest}","input":{text}}}'


def ended(call: Call, result: Result, seconds: float) -> tuple[str, str, Result]:
    """Name and data of the event that settles a call, and its result as it will be read back."""
    try:
        text, kept = written(result)
    except NotJson as error:
        text, kept = written(Result.raised(error))
    step = f'"step_id":{quote(call.path.rsplit("/", 1)[-1])},' if call.step else ""
    named, took = quote(call.node_id), f'"duration_ms":{seconds * 1000:.3f},{step}'
    if kept["success"]:
        data = f'{{"node_id":{named},"success":true,{took}"result":{text}}}'
        return "step_completed" if call.step else _TYPES[kept.settled], data, kept
    data = f'{{"node_id":{named},"success":false,{took}{reasons(kept)}"result":{text}}}'
    return "step_failed" if call.step else _TYPES[kept.settled], data, kept


def written(result: Result) -> tuple[str, Result]:
    """The JSON of a result, and the result as it will be read back; a plain one stays what it is."""
    output = result["output"]
    if is_plain(output) and not result["attributes"] and len(result) == 3 and result["success"] is True:
        try:
            return f'{{"success":true,"output":{encode(output)},"attributes":{{}}}}', result
        except NotJson:
            pass  # said below with its place
    text = encode(result)
    return text, read_back(decode(text), text).ended_as(result)


def read_back(value: dict[str, Any], text: str) -> Result:
    """A result that was read from a text, and the Results in it, which only control nodes give."""
    made: Result = revived(value) if text.count('"attributes":') > 1 else Result(value)
    return made


def reasons(result: Result) -> str:
    """Why a call failed, as its event says it."""
    text = f'"error":{encode(result.error)},"error_type":{quote(result.error_type)},'
    if result.settled == "timeout":
        text += f'"timeout":{encode(result.allowed)},'
    return text


def result_of(row: Row) -> Result:
    """The result that a settling event carries."""
    result = read_back(decode(row.data)["result"], row.data)
    result.settled = _SETTLED.get(row.type, "completed")
    return result


def outcome_of(row: Row) -> Any:
    """What the body is told: a result, an answer, or that the time ran out."""
    if row.type in ("gate_timeout", "signal_timeout"):
        return late(row.type.removesuffix("_timeout"), decode(row.data).get("timeout"))
    if row.type in ("timer_fired", "node_cancelled"):
        return None
    if row.type in ("gate_answered", "signal_received"):
        data = decode(row.data)
        return data.get("answer", data.get("value"))
    return result_of(row)


def late(kind: str, seconds: float | None) -> TimeoutError:
    """What a body is told when the time of a gate or a signal has run out."""
    return TimeoutError(f"{kind} timed out" + (f" after {seconds:g} s" if seconds is not None else ""))


def start_of(past: Sequence[Row]) -> dict[str, Any]:
    """What a run was started with, and the definition that it goes on with."""
    start: dict[str, Any] = decode(past[0].data)
    for row in past:
        if row.type == "workflow_changed":
            start["definition"] = decode(row.data)["definition"]
    return start


def resets_in(rows: Iterable[Row]) -> list[tuple[str, int]]:
    return [(row.path, row.seq) for row in rows if row.type == "path_reset"]


def call_key(path: str, resets: Sequence[tuple[str, int]]) -> str:
    """What a child run is called after: the place of the call, and its last reset."""
    for place, seq in reversed(resets):
        if within(path, place):
            return f"{path}#{seq}"
    return path


def settle_key(path: str, resets: Sequence[tuple[str, int]]) -> str:
    """A path settles once, and once more after each reset of it, or of something in it."""
    for place, seq in reversed(resets):
        if within(path, place) or place.startswith(f"{path}/"):
            return f"{path}#{seq}"
    return path


def ids_of(start: Mapping[str, Any]) -> list[str]:
    """The ids of the runs that a fork was made of, the first one first, and its own; of others, none."""
    before: list[str] = (start.get("forked_from") or {}).get("origins", [])
    return [*before, start["run_id"]] if before else []


def copied(start: Mapping[str, Any]) -> int:
    """How many events a run began with that are another's; its own first one is among them."""
    return int((start.get("forked_from") or {}).get("copied", 0))


def tally(rows: Sequence[Row]) -> Usage:
    """What the run had used when it was last seen; what it took over was spent by another."""
    usage = Usage()
    control: set[str] = set()
    taken = copied(decode(rows[0].data)) if rows else 0
    for row in rows:
        if row.type in ASKS and row.data.startswith(CONTROL):
            control.add(row.path)
        elif row.type in ("node_started", "step_started"):
            usage.steps += 1
        elif row.type in ("loop_iteration", "state_entered"):
            usage.iterations += 1
        elif row.settles and row.path not in control:
            if '"success":false' in row.data and decode(row.data).get("success") is False:
                usage.errors += 1
            if row.seq > taken and '"usage"' in row.data:
                usage.spend(decode(row.data).get("result", {}).get("attributes", {}).get("usage"))
        elif row.type == "child_stopped" and row.seq > taken:
            usage.spend(decode(row.data)["usage"])
    return usage


@dataclass(slots=True)
class Called:
    """The calls of child runs that were not heard from, by their paths and what the runs are called after."""

    open: dict[str, str] = field(default_factory=dict)
    replaced: list[tuple[str, str]] = field(default_factory=list)
    """Those that do not count any more: another run is asked for instead, or none."""
    counted: set[str] = field(default_factory=set)
    """The runs of which it was noted what they took."""


def called(rows: Iterable[Row]) -> Called:
    """What a journal has of child runs."""
    found, resets = Called(), list[tuple[str, int]]()
    for row in rows:
        if is_child(row):
            found.open[row.path] = call_key(row.path, resets)
        elif row.settles:
            found.open.pop(row.path, None)
        elif row.type == "child_stopped":
            found.counted.add(decode(row.data)["run_id"])
        elif row.type == "path_reset":
            resets.append((row.path, row.seq))
            gone = [path for path in found.open if within(path, row.path)]
            found.replaced += [(path, found.open.pop(path)) for path in gone]
    return found


def under_way(rows: Iterable[Row]) -> dict[str, Mapping[str, Any]]:
    """What agents noted of what they took, in steps that are not over, by their paths."""
    noted: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row.type == "agent_thread":
            noted[row.path] = decode(row.data).get("usage") or {}
        elif row.settles or row.type in ASKS:
            noted.pop(row.path, None)
    return noted


def ran_for(past: Iterable[Row]) -> float:
    """Seconds that a run is known to have run: not while it waited, for a child too, or nobody drove it."""
    seconds, before = 0.0, 0.0
    stands, waits = False, set[str]()
    for row in past:
        goes_on = not (stands or waits or row.seq == 1 or is_recovered(row))
        seconds += max(0.0, row.at - before) if goes_on else 0.0
        before = row.at
        if row.type in ("workflow_paused", "workflow_held", "workflow_resumed"):
            stands = row.type != "workflow_resumed"
        elif is_child(row) or keeps_waiting(row):
            waits.add(row.path)
        elif row.settles or row.type in DROPS:
            waits.discard(row.path)
        elif row.type == "path_reset":
            waits = {path for path in waits if not within(path, row.path)}
    return seconds


def keeps_waiting(row: Row) -> bool:
    """Whether a row says that a run waits for a person, a fact or a time; a bound on time is none."""
    return row.type in WAITS and not (row.type == "timer_started" and '"guard":true' in row.data)


def is_recovered(row: Row) -> bool:
    """Whether a row says that a step goes on which another process had begun."""
    return row.type == "node_retrying" and '"recovered":true' in row.data


def resumed(run_id: str, limits: Mapping[str, Any], with_changes: bool = False) -> dict[str, Any]:
    """The data of `workflow_resumed`."""
    data: dict[str, Any] = {"run_id": run_id}
    if limits:
        data["limits"] = dict(limits)
    if with_changes:
        data["with_changes"] = True
    return data


def limits_of(past: Sequence[Row]) -> Limits:
    """The limits a run was started with, as they were raised since."""
    limits = Limits.read(decode(past[0].data).get("limits")) if past else Limits()
    for row in past:
        if row.type == "workflow_resumed":
            limits = limits.raised(raised(decode(row.data).get("limits", {}))[0])
    return limits


def raised_for_steps(past: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """What the budgets of steps were raised to, by their paths."""
    made: dict[str, dict[str, Any]] = {}
    for row in past:
        if row.type == "workflow_started" and '"raised"' in row.data:
            made |= decode(row.data).get("raised", {})
        if row.type == "workflow_resumed" and '"limits"' in row.data:
            for path, more in raised(decode(row.data)["limits"])[1].items():
                made[path] = {**made.get(path, {}), **more}
    return made


def step_of(path: str) -> str:
    """The step that a leaf is an attempt of: one that is made again stands beside the first."""
    place, slash, name = path.rpartition("/")
    return place + slash + name.partition("~")[0]


def lenient_upto(past: Sequence[Row]) -> int:
    """Up to which event the journal is an offer only: copied by a fork, or older than changed code."""
    accepted = (row.seq for row in past if row.type == "workflow_resumed" and "with_changes" in row.data)
    return max(copied(decode(past[0].data)), *accepted, 0)
