"""The timeline of a run: one row per step, with its attempts and waits as bars on a folded time axis.

`Timeline` keeps the periods of every step up to date as events arrive. `Timeline.layout` returns rows and
bars with positions as fractions of the width, which any screen can draw.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from nerve.core.events import (
    RUN_END_EVENTS,
    STEP_END_EVENTS,
    STEP_START_EVENTS,
    WAIT_END_EVENTS,
    WAIT_OPEN_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
)
from nerve.core.run_view import BUSY_NODE_STATES, NodeView
from nerve.core.step_names import plain_path_part, step_path
from nerve.journal.paths import is_within_step
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import summarize_tool_call
from nerve.ui.formatting import format_two_units
from nerve.ui.progress_tree import ProgressTree, RunBranch, format_step_name, visible_nodes

BarKind = Literal[
    "run", "control", "gate", "timer", "signal", "message", "queue", "child", "retry", "limit", "pause",
    "hold", "down", "tool", "group",
]  # fmt: skip
"""What a step does in a period: it runs, or waits for something. `down` means that no process ran it."""
RowKind = Literal["run", "step", "control", "child", "wait", "tool", "group", "round"]

WAIT_KINDS: dict[str, BarKind] = {
    WorkflowEventType.GATE_WAITING: "gate",
    WorkflowEventType.TIMER_STARTED: "timer",
    WorkflowEventType.SIGNAL_WAITING: "signal",
    WorkflowEventType.MESSAGE_WAITING: "message",
    WorkflowEventType.QUEUE_WAITING: "queue",
}
ACTIVE_KINDS = ("run", "tool")
"""The kinds of bars in which something of the run is active."""
CALL_KINDS = ("run", "control", "child")
ENDED_TOOL_STATES = ("completed", "failed", "cancelled")

MIN_FOLDED_S = 5.0
"""Shorter idle gaps are not folded."""
FOLD_WIDTH, MAX_FOLDS_WIDTH = 0.04, 0.35
"""The width of a folded gap, and the maximum width of all of them, as fractions."""
MAX_SIBLINGS = 12
"""Siblings of one name that are shown; more are collapsed into a group."""
MAX_SHOWN_OF_GROUP = 5
"""Failed and open items of a collapsed group that are shown below it; the newest item is one more."""
MAX_GROUP_BARS = 60
TICK_COUNT = 6
NICE_STEPS_S = (
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
    14400, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip


# -- what is recorded ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Period:
    """A period of a step: an attempt or a part of it, or a wait."""

    kind: BarKind
    start: float
    end: float | None = None
    """None while it lasts."""
    state: str = "running"
    attempt: int = 1
    label: str = ""


@dataclass(slots=True)
class StepPeriods:
    """The periods of one step, in order and without overlap."""

    periods: list[Period] = field(default_factory=list)
    tool_calls: dict[str, Period] = field(default_factory=dict)
    """The tool calls of an agent, by id."""
    _call_kind: BarKind | None = None
    """What the step does when it waits for nothing; None if no call is open."""
    _attempt: int = 0
    _waits: dict[str, tuple[BarKind, str]] = field(default_factory=dict)
    """The kinds and labels of the open waits, by path."""

    @property
    def is_open(self) -> bool:
        return self._call_kind is not None or bool(self._waits)

    def start_call(self, kind: BarKind, at: float) -> None:
        if self.is_open:
            self._end_attempt(at, "interrupted", "")
        self._attempt += 1
        self._call_kind = kind
        self._continue(at)

    def retry_call(self, attempt: int, delay: float, label: str, at: float) -> None:
        """End an attempt; the next one starts after the delay."""
        self._end_attempt(at, "failed", label)
        self._attempt = attempt
        self._call_kind = self._call_kind or "run"
        if delay > 0:
            self.periods.append(Period("retry", at, at + delay, "waiting", attempt, "delay before a retry"))
        self._continue(at + max(0.0, delay))

    def recover_call(self, alive_until: float, attempt: int, at: float) -> None:
        """Note that the process that ran the attempt ended, and that the attempt starts again."""
        current = self._current
        down_since = at if current is None else min(max(current.start, alive_until), at)
        self._end_attempt(down_since, "interrupted", "the process ended")
        if down_since < at:
            self.periods.append(Period("down", down_since, at, "waiting", attempt, "no process"))
        self._attempt, self._call_kind = attempt, self._call_kind or "run"
        self._continue(at)

    def end_call(self, state: str, at: float, label: str = "") -> None:
        self._end_attempt(at, state, label)
        self._call_kind = None
        self._waits.clear()
        self._end_tool_calls(at, state)

    def open_wait(self, path: str, kind: BarKind, label: str, at: float) -> None:
        self._end_current(at)
        self._waits[path] = kind, label
        self._continue(at)

    def end_wait(self, path: str, state: str, at: float) -> None:
        if self._waits.pop(path, None) is not None:
            self._end_current(at, state)
            self._continue(at)

    def end_all(self, at: float, state: str) -> None:
        """End everything that is open, because the run has ended or the step is requested again."""
        if self.is_open:
            self.end_call(state, at)

    def add_tool_call(self, data: Mapping[str, Any], at: float) -> None:
        """Note a tool call, or how one proceeds."""
        call_id = str(data.get("id") or "")
        known = self.tool_calls.get(call_id) if call_id else None
        if known is None and "name" in data:
            self._end_unnumbered_call(at)
            call_id = call_id or f"call {len(self.tool_calls) + 1}"
            self.tool_calls[call_id] = Period("tool", at, label=summarize_tool_call(dict(data)))
        elif known is not None and known.end is None and data.get("status") in ENDED_TOOL_STATES:
            known.end, known.state = at, str(data["status"])

    def note_output(self, at: float) -> None:
        """Note that the agent has said something: a tool call without an id has ended."""
        self._end_unnumbered_call(at)

    @property
    def _current(self) -> Period | None:
        return self.periods[-1] if self.periods and self.periods[-1].end is None else None

    def _continue(self, at: float) -> None:
        """Start the next period: of the latest open wait, or of the call."""
        if self._waits:
            kind, label = next(reversed(self._waits.values()))
            self.periods.append(Period(kind, at, state="waiting", attempt=max(1, self._attempt), label=label))
        elif self._call_kind is not None:
            self.periods.append(Period(self._call_kind, at, attempt=max(1, self._attempt)))

    def _end_current(self, at: float, state: str | None = None) -> None:
        """End the current period; without a state, the call continues after a wait that starts now."""
        if (current := self._current) is None:
            return
        if current.start > at:  # an attempt that has not started: its delay has not passed
            self.periods.pop()
            if self.periods and self.periods[-1].kind == "retry":
                self.periods[-1].end = at
        elif state is None and current.start == at:
            self.periods.pop()
        else:
            current.end = at
            current.state = state or current.state

    def _end_attempt(self, at: float, state: str, label: str) -> None:
        """End the current period, and with it all parts of the attempt, which waits may have divided."""
        attempt = max(1, self._attempt)
        self._end_current(at, state)
        for period in reversed(self.periods):
            if period.attempt != attempt:
                break
            if period.kind in CALL_KINDS and period.state == "running":
                period.state = state
        if label and self.periods:
            self.periods[-1].label = label

    def _end_unnumbered_call(self, at: float) -> None:
        last_id = next(reversed(self.tool_calls), "")
        if last_id.startswith("call ") and self.tool_calls[last_id].end is None:
            self.tool_calls[last_id].end, self.tool_calls[last_id].state = at, "completed"

    def _end_tool_calls(self, at: float, state: str) -> None:
        for call in self.tool_calls.values():
            if call.end is None:
                call.end, call.state = at, "completed" if state == "completed" else "cancelled"


class RunPeriods:
    """The periods of the steps of one run, by path; the run itself has the empty path."""

    def __init__(self) -> None:
        self.steps: dict[str, StepPeriods] = {"": StepPeriods()}
        self.added_paths: dict[str, list[str]] = {}
        """The rows that only waits have, by the path of their parent."""
        self._wait_rows: dict[str, str] = {}
        """The row of each open wait, by the path of the wait."""
        self._last_at = self._alive_until = 0.0

    def apply_event(self, event: WorkflowEvent) -> None:
        type, path, data = event.event_type, event.path, event.data
        # The clock of the machine may have been set back; a period does not end before it starts.
        at = self._last_at = max(self._last_at, event.timestamp.timestamp())
        is_recovery = type == WorkflowEventType.NODE_RETRYING and bool(data.get("recovered"))
        if type in STEP_START_EVENTS:
            kind: BarKind = "child" if data.get("child") else "control" if data.get("control") else "run"
            self._step(path).start_call(kind, at)
        elif type in STEP_END_EVENTS:
            state = "cancelled" if type == WorkflowEventType.NODE_CANCELLED else None
            state = state or ("completed" if data.get("success") else "failed")
            self._step(path).end_call(state, at, str(data.get("error") or ""))
        elif is_recovery:
            self._step(path).recover_call(self._alive_until, read_int(data.get("attempt")), at)
        elif type == WorkflowEventType.NODE_RETRYING:
            delay = data.get("delay")
            seconds = float(delay) if isinstance(delay, int | float) and delay < 1e9 else 0.0
            attempt = read_int(data.get("attempt")) + 1
            self._step(path).retry_call(attempt, seconds, str(data.get("error") or ""), at)
        elif type in WAIT_OPEN_EVENTS:
            if not data.get("guard") and not data.get("background"):
                row = self._wait_rows[path] = self._row_of_wait(path, data)
                self._step(row).open_wait(path, WAIT_KINDS[type], describe_wait(type, data), at)
        elif type in WAIT_END_EVENTS:
            if (wait_row := self._wait_rows.pop(path, None)) is not None:
                self._step(wait_row).end_wait(path, wait_end_state(type, data), at)
        elif type == WorkflowEventType.TOOL_CALL:
            self._step(path).add_tool_call(data, at)
        elif type == WorkflowEventType.OUTPUT_CHUNK:
            if (step := self.steps.get(path)) is not None:
                step.note_output(at)
        elif type == WorkflowEventType.PROVIDER_LIMITED:
            self._step(path).open_wait("limit", "limit", str(data.get("message") or ""), at)
        elif type == WorkflowEventType.PROVIDER_OPEN:
            self._step(path).end_wait("limit", "completed", at)
        elif type == WorkflowEventType.PATH_RESET:
            for step_path, step in self.steps.items():
                if step_path and is_within_step(step_path, path):
                    step.end_all(at, "cancelled")
        else:
            self._apply_run_event(type, data, at)
        if not is_recovery:
            self._alive_until = at

    def _apply_run_event(self, type: str, data: Mapping[str, Any], at: float) -> None:
        run = self.steps[""]
        if type == WorkflowEventType.STARTED:
            run.start_call("control", at)
        elif type == WorkflowEventType.PAUSED:
            run.open_wait("pause", "pause", "paused", at)
        elif type == WorkflowEventType.HELD:
            run.open_wait("hold", "hold", str(data.get("message") or "held"), at)
        elif type == WorkflowEventType.RESUMED:
            run.end_wait("pause", "completed", at)
            run.end_wait("hold", "completed", at)
            if not run.is_open:  # a run that had ended is continued
                run.start_call("control", at)
        elif type in RUN_END_EVENTS:
            state = type.removeprefix("workflow_")
            run.end_call(state, at)
            for step in self.steps.values():
                step.end_all(at, "cancelled")
            self._wait_rows.clear()

    def _step(self, path: str) -> StepPeriods:
        step = self.steps.get(path)
        if step is None:
            step = self.steps[path] = StepPeriods()
        return step

    def _row_of_wait(self, path: str, data: Mapping[str, Any]) -> str:
        """Return the path of the row that shows a wait: the step that it belongs to, or the wait itself."""
        if "~" in path.rpartition("/")[2]:
            row = step_path(path).rstrip("/")
        elif not (row := path.rpartition("/")[0]):
            row = f"/{data['node_id']}" if data.get("node_id") else path
        if row and row not in self.steps:
            self.added_paths.setdefault(row.rpartition("/")[0], []).append(row)
        return row


def read_int(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < 1e9 else 1


def describe_wait(type: str, data: Mapping[str, Any]) -> str:
    match type:
        case WorkflowEventType.GATE_WAITING:
            return str(data.get("prompt") or "gate")
        case WorkflowEventType.SIGNAL_WAITING:
            return f"signal {data.get('label') or ''}".strip() if not data.get("patterns") else "a fact"
        case WorkflowEventType.MESSAGE_WAITING:
            return f"message {data.get('channel') or ''}".strip()
        case WorkflowEventType.QUEUE_WAITING:
            return f"queue {data.get('queue') or ''}".strip()
    return "timer"


def wait_end_state(type: str, data: Mapping[str, Any]) -> str:
    if type.endswith("_cancelled"):
        return "cancelled"
    # A timeout of 0 polls, so its expiry is the answer.
    return "failed" if type.endswith("_timeout") and data.get("timeout") != 0 else "completed"


# -- the time axis ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AxisPart:
    """A part of the time axis: linear, or a folded gap in which nothing was active."""

    start: float
    end: float
    x: float
    width: float
    label: str = ""
    """Of a folded gap: `idle 3 d 4 h`."""

    @property
    def is_folded(self) -> bool:
        return bool(self.label)


@dataclass(frozen=True, slots=True)
class AxisTick:
    x: float
    label: str
    """The time since the start of the run."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Maps times to positions between 0 and 1. A later time never has a smaller position."""

    parts: tuple[AxisPart, ...]

    @classmethod
    def of(cls, started: float, ended: float, periods: Iterable[Period]) -> TimeAxis:
        """Return the axis from the start to the end of a run, with its long idle gaps folded."""
        ended = max(ended, started + 0.001)
        gaps = find_idle_gaps(started, ended, periods)
        if not gaps:
            return cls((AxisPart(started, ended, 0.0, 1.0),))
        linear_s = (ended - started) - sum(end - start for start, end in gaps)
        fold_width = min(FOLD_WIDTH, MAX_FOLDS_WIDTH / len(gaps)) if linear_s > 0 else 1 / len(gaps)
        linear_width = 1 - fold_width * len(gaps)
        parts: list[AxisPart] = []
        x, at = 0.0, started
        for start, end in [*gaps, (ended, ended)]:
            if start > at:
                width = linear_width * (start - at) / linear_s
                parts.append(AxisPart(at, start, x, width))
                x += width
            if end > start:
                parts.append(AxisPart(start, end, x, fold_width, f"idle {format_two_units(end - start)}"))
                x += fold_width
            at = end
        return cls(tuple(parts))

    @property
    def folds(self) -> list[AxisPart]:
        return [part for part in self.parts if part.is_folded]

    @property
    def started(self) -> float:
        return self.parts[0].start

    @property
    def ended(self) -> float:
        return self.parts[-1].end

    def position(self, at: float) -> float:
        """Return the position of a time; times outside of the axis are moved to its ends."""
        number = max(0, bisect_right(self.parts, at, key=lambda part: part.start) - 1)
        part = self.parts[number]
        inside = min(max((at - part.start) / (part.end - part.start), 0.0), 1.0)
        return min(part.x + part.width * inside, 1.0)

    @property
    def ticks(self) -> list[AxisTick]:
        """The labelled times in the linear parts."""
        linear = [part for part in self.parts if not part.is_folded]
        total_s = sum(part.end - part.start for part in linear)
        step = next((nice for nice in NICE_STEPS_S if nice * TICK_COUNT >= total_s), total_s / TICK_COUNT)
        ticks: list[AxisTick] = []
        for part in linear:
            number = int((part.start - self.started) / step)
            while (at := self.started + number * step) <= part.end and len(ticks) <= 2 * TICK_COUNT:
                if at >= part.start:
                    ticks.append(AxisTick(self.position(at), format_two_units(at - self.started)))
                number += 1
        return ticks


def find_idle_gaps(started: float, ended: float, periods: Iterable[Period]) -> list[tuple[float, float]]:
    """Return the gaps to fold: those longer than the longest time in which something was active."""
    changes: list[tuple[float, int]] = [(started, 0), (ended, 0)]
    for period in periods:
        weight = 1 if period.kind in ACTIVE_KINDS else 0
        end = ended if period.end is None else period.end
        if period.kind != "control" and end > started and period.start < ended:
            changes += ((max(period.start, started), weight), (min(end, ended), -weight))
    changes.sort(key=lambda change: (change[0], -change[1]))  # what starts at once is active without a gap
    gaps: list[tuple[float, float]] = []
    active, active_since, longest = 0, started, 0.0
    previous = started
    for at, change in changes:
        if active == 0 and at > previous:
            gaps.append((previous, at))
        was_active, active = active, active + change
        if was_active == 0 and active:
            active_since = at
        elif was_active and active == 0:
            longest = max(longest, at - active_since)
        previous = at
    shortest = max(MIN_FOLDED_S, longest)
    return [gap for gap in gaps if gap[1] - gap[0] > shortest]


# -- what is drawn ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A bar of a row; `x` and `width` are fractions of the width of the timeline."""

    kind: BarKind
    state: str
    x: float
    width: float
    started: float
    ended: float | None
    """None while it lasts."""
    attempt: int = 1
    label: str = ""

    @property
    def is_wait(self) -> bool:
        return self.kind not in ("run", "control", "tool", "group")


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A row: a step, a tool call, a child run's step, or a group of collapsed siblings."""

    id: str
    """The same row has the same id in every layout."""
    parent_id: str | None
    run_id: str
    path: str
    """The path in its own run, for which the API has details; empty for the run itself."""
    kind: RowKind
    name: str
    state: str
    depth: int
    x: float
    width: float
    started: float | None
    ended: float | None
    bars: tuple[TimelineBar, ...] = ()
    note: str = ""
    attempts: int = 1
    count: int = 1
    """Of a group: the number of items."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of a group: the number of items in each state."""
    is_collapsed: bool = False
    """Whether more rows appear below it if it is expanded."""


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """The rows of a run at a time, from top to bottom."""

    run_id: str
    axis: TimeAxis
    rows: tuple[TimelineRow, ...]
    is_running: bool


@dataclass(slots=True)
class RowDraft:
    """A row without positions, and its place in time, which encloses that of its children."""

    id: str
    run_id: str
    path: str
    kind: RowKind
    name: str | NodeView
    """The name, or the step with the name, which is formatted only for rows that are shown."""
    state: str
    note: str = ""
    attempts: int = 1
    periods: list[Period] = field(default_factory=list)
    started: float | None = None
    ended: float | None = None
    children: list[RowDraft] = field(default_factory=list)
    shown: list[RowDraft] | None = None
    """The children that are shown; None for all."""
    count: int = 1
    counts: dict[str, int] = field(default_factory=dict)

    def enclose(self, started: float | None, ended: float | None) -> None:
        """Extend its place in time so that it encloses another one."""
        if started is None:
            return
        is_first = self.started is None
        self.started = started if self.started is None else min(self.started, started)
        if is_first:
            self.ended = ended
        elif self.ended is not None:
            self.ended = None if ended is None else max(self.ended, ended)


class Timeline:
    """The steps of a run and of its child runs in time. `apply_event` takes the events of each run in order.

    The order in which the events of different runs arrive does not matter.
    """

    def __init__(self) -> None:
        self.tree = ProgressTree()
        self._runs: dict[str, tuple[str, RunPeriods]] = {}
        """The run ids and periods of the branches of the tree, by call path."""

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        """Add the next event of a run; `prefix` is the path of the call that started it, or empty."""
        self.tree.apply_event(prefix, event)
        known = self._runs.get(prefix)
        if known is None or known[0] != event.run_id:
            for replaced in [each for each in self._runs if each not in self.tree.branches]:
                del self._runs[replaced]
            known = self._runs[prefix] = event.run_id, RunPeriods()
        known[1].apply_event(event)

    def layout(self, now: datetime, expanded: Collection[str] = ()) -> TimelineLayout:
        """Return the rows at a time; groups with an id in `expanded` show all of their items."""
        view = self.tree.root.view
        root = self._draft_root(expanded)
        started = root.started if root.started is not None else now.timestamp()
        ended = root.ended if root.ended is not None else max(now.timestamp(), started)
        periods = (
            period
            for _, run in self._runs.values()
            for step in run.steps.values()
            for period in (*step.periods, *step.tool_calls.values())
        )
        axis = TimeAxis.of(started, ended, periods)
        rows: list[TimelineRow] = []
        stack: list[tuple[RowDraft, str | None, int]] = [(root, None, 0)]
        while stack:
            draft, parent_id, depth = stack.pop()
            rows.append(place_row(draft, parent_id, depth, axis))
            children = draft.children if draft.shown is None else draft.shown
            stack += [(child, draft.id, depth + 1) for child in reversed(children)]
        return TimelineLayout(view.run_id, axis, tuple(rows), view.ended_at is None)

    def _draft_root(self, expanded: Collection[str]) -> RowDraft:
        branch = self.tree.root
        run_periods = self._runs[""][1]
        view = branch.view
        root = RowDraft("/", branch.run_id, "", "run", view.workflow_id, view.state, view.error or "")
        root.periods = run_periods.steps[""].periods
        enclose_periods(root, root.periods)
        self._add_children(root, branch, run_periods, branch.shown_nodes, "", expanded)
        return root

    def _add_children(
        self,
        draft: RowDraft,
        branch: RunBranch,
        run: RunPeriods,
        nodes: list[NodeView],
        path: str,
        expanded: Collection[str],
    ) -> None:
        """Add the rows of the steps below a step, and of the child run that the step has started."""
        full_path = branch.prefix + path
        child_branch = self.tree.branches.get(full_path) if path else None
        if not nodes and child_branch is None and path not in run.added_paths:
            return
        children = self._draft_steps(branch, run, nodes, path, expanded)
        if child_branch is not None:
            child_run = self._runs[full_path][1]
            children += self._draft_steps(child_branch, child_run, child_branch.shown_nodes, "", expanded)
        draft.children = group_siblings(draft, children, expanded)
        for child in children:
            draft.enclose(child.started, child.ended)

    def _draft_steps(
        self,
        branch: RunBranch,
        run: RunPeriods,
        nodes: list[NodeView],
        path: str,
        expanded: Collection[str],
    ) -> list[RowDraft]:
        """Return the rows of a level; the rounds of a workflow, which have no path, are numbered."""
        drafts: list[RowDraft] = []
        rounds = 0
        for node in visible_nodes(branch, self._with_waits(branch, run, nodes, path)):
            rounds += node.state == "round"
            row_id = branch.prefix + (node.path or f"/~round[{rounds}]")
            drafts.append(self._draft_step(row_id, node, branch, run, expanded))
        return drafts

    @staticmethod
    def _with_waits(branch: RunBranch, run: RunPeriods, nodes: list[NodeView], path: str) -> list[NodeView]:
        """Return the steps of a level with the waits that have no step, in the order of their start."""
        if path not in run.added_paths:
            return nodes
        shown_paths = {node.path for node in nodes}
        added = [
            NodeView(wait_path, wait_path.rpartition("/")[2], state_of_wait(run.steps[wait_path]))
            for wait_path in run.added_paths[path]
            if wait_path not in branch.view.nodes and wait_path not in shown_paths
        ]
        if not added:
            return nodes

        def start_of(node: NodeView) -> float:
            step = run.steps.get(node.path)
            if step is not None and step.periods:
                return step.periods[0].start
            if node.started_at is not None:
                return node.started_at.timestamp()
            return next((start_of(child) for child in node.children), float("inf"))

        return sorted([*nodes, *added], key=start_of)

    def _draft_step(
        self, row_id: str, node: NodeView, branch: RunBranch, run: RunPeriods, expanded: Collection[str]
    ) -> RowDraft:
        step = run.steps.get(node.path) if node.path else None
        periods = step.periods if step is not None else []
        draft = RowDraft(
            row_id,
            branch.run_id,
            node.path,
            kind_of_row(node, periods),
            node,
            node.state,
            branch.notes.get(node.path, "") or node.error or "",
            node.attempts,
            periods,
        )
        if periods:
            enclose_periods(draft, periods)
        elif node.started_at is not None and node.state != "pending":
            ended = node.ended_at.timestamp() if node.ended_at is not None else None
            draft.enclose(node.started_at.timestamp(), ended)
        self._add_children(draft, branch, run, node.children, node.path, expanded)
        if step is not None and step.tool_calls:
            tools = [draft_tool_call(draft, call_id, call) for call_id, call in step.tool_calls.items()]
            draft.children = [*group_siblings(draft, tools, expanded, "tool calls"), *draft.children]
            for tool in tools:
                draft.enclose(tool.started, tool.ended)
        return draft


def state_of_wait(step: StepPeriods) -> str:
    return step.periods[-1].state if step.periods else "pending"


def kind_of_row(node: NodeView, periods: list[Period]) -> RowKind:
    if node.state == "round":
        return "round"
    kinds = {period.kind for period in periods}
    if "child" in kinds:
        return "child"
    if "run" in kinds:
        return "step"
    if kinds - {"control"}:
        return "wait"
    return "control" if node.children or node.is_control else "step"


def enclose_periods(draft: RowDraft, periods: list[Period]) -> None:
    if periods:
        draft.enclose(periods[0].start, periods[-1].end)


def draft_tool_call(step: RowDraft, call_id: str, call: Period) -> RowDraft:
    name = call.label.split(" ")[1] if call.label.startswith("⚒ ") else call.label
    draft = RowDraft(f"{step.id}#{call_id}", step.run_id, step.path, "tool", name, call.state, call.label)
    draft.periods = [call]
    draft.enclose(call.start, call.end)
    return draft


def group_siblings(
    parent: RowDraft, children: list[RowDraft], expanded: Collection[str], name: str | None = None
) -> list[RowDraft]:
    """Return the children; many of one name, such as the iterations of a loop, become a group."""
    if len(children) <= MAX_SIBLINGS:
        return children
    by_name: dict[str, list[RowDraft]] = {}
    for child in children:
        by_name.setdefault(name or name_of_sibling(child), []).append(child)
    grouped: list[RowDraft] = []
    for sibling_name, siblings in by_name.items():
        if len(siblings) <= MAX_SIBLINGS:
            grouped += siblings
        else:
            grouped.append(draft_group(parent, sibling_name, siblings, expanded))
    return grouped


def name_of_sibling(child: RowDraft) -> str:
    last = child.path.rpartition("/")[2]
    # Without a regular expression, because there may be thousands.
    return plain_path_part(last) if last.startswith("_") else last.partition("[")[0]


def draft_group(parent: RowDraft, name: str, items: list[RowDraft], expanded: Collection[str]) -> RowDraft:
    group_id = f"{parent.id.rstrip('/')}/{name}[*]"
    group = RowDraft(group_id, parent.run_id, parent.path, "group", name, "completed")
    group.children, group.count = items, len(items)
    for item in items:
        group.counts[item.state] = group.counts.get(item.state, 0) + 1
        group.enclose(item.started, item.ended)
    states = ("failed", "waiting", "retrying", "running", "cancelled", "completed")
    group.state = next((state for state in states if state in group.counts), "pending")
    if open_state := next((state for state in BUSY_NODE_STATES if state in group.counts), None):
        group.state = open_state
    group.periods = merge_items(items)
    if group_id not in expanded:
        remarkable = [item for item in items if item.state == "failed" or item.state in BUSY_NODE_STATES]
        newest = [item for item in items[-1:] if item not in remarkable[-MAX_SHOWN_OF_GROUP:]]
        group.shown = remarkable[-MAX_SHOWN_OF_GROUP:] + newest
    return group


def merge_items(items: list[RowDraft]) -> list[Period]:
    """Return the periods in which any item of a group was open; one for all if they are many."""
    places = sorted((item.started, item.ended) for item in items if item.started is not None and item.ended)
    open_starts = [item.started for item in items if item.started is not None and item.ended is None]
    merged: list[Period] = []
    for start, end in [*places, *((start, None) for start in sorted(open_starts))]:
        last = merged[-1] if merged else None
        if last is not None and (last.end is None or start <= last.end):
            last.end = None if end is None or last.end is None else max(last.end, end)
            last.start = min(last.start, start)
        else:
            merged.append(Period("group", start, end))
    if len(merged) > MAX_GROUP_BARS:
        return [Period("group", merged[0].start, merged[-1].end)]
    return merged


def place_row(draft: RowDraft, parent_id: str | None, depth: int, axis: TimeAxis) -> TimelineRow:
    x = axis.position(draft.started) if draft.started is not None else 0.0
    end_x = (
        axis.position(axis.ended if draft.ended is None else draft.ended) if draft.started is not None else x
    )
    shown = draft.children if draft.shown is None else draft.shown
    return TimelineRow(
        id=draft.id,
        parent_id=parent_id,
        run_id=draft.run_id,
        path=draft.path,
        kind=draft.kind,
        name=draft.name if isinstance(draft.name, str) else format_step_name(draft.name),
        state=draft.state,
        depth=depth,
        x=x,
        width=max(0.0, end_x - x),
        started=draft.started,
        ended=draft.ended,
        bars=tuple(place_bars(draft.periods, axis)),
        note=draft.note,
        attempts=draft.attempts,
        count=draft.count,
        counts=draft.counts,
        is_collapsed=len(shown) < len(draft.children),
    )


def place_bars(periods: list[Period], axis: TimeAxis) -> Iterator[TimelineBar]:
    for period in periods:
        x = axis.position(period.start)
        # The delay before a retry, and the attempt after it, may lie in the future.
        if period.start > axis.ended:
            return
        end_x = axis.position(axis.ended if period.end is None else period.end)
        yield TimelineBar(
            period.kind,
            period.state,
            x,
            max(0.0, end_x - x),
            period.start,
            period.end,
            period.attempt,
            period.label,
        )
