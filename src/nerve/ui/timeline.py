"""The timeline of a run: one row per step, with its attempts and waits as bars on a folded time axis.

`Timeline` keeps the periods of every step up to date as events arrive. `Timeline.layout` returns rows and
bars with positions as fractions of the width, which any screen can draw.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Literal, NamedTuple, overload

from nerve.core.events import WorkflowEvent
from nerve.core.run_view import BUSY_NODE_STATES, NodeView
from nerve.core.step_names import plain_path_part
from nerve.lazy_dataclass import dataclass
from nerve.ui.progress_tree import ProgressTree, RunBranch, format_step_name, visible_nodes
from nerve.ui.step_periods import BarKind, Period, RunPeriods, StepPeriods
from nerve.ui.time_axis import TimeAxis

RowKind = Literal["run", "step", "control", "child", "wait", "tool", "group", "round"]

MAX_SIBLINGS = 12
"""Siblings of one name that are shown; more are collapsed into a group."""
MAX_SHOWN_OF_GROUP = 5
"""Failed and open items of a collapsed group that are shown below it; the newest item is one more."""
MAX_GROUP_BARS = 60


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
    has_children: bool = False
    is_collapsed: bool = False
    """Whether more rows appear below it if it is expanded."""


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """The rows of a run at a time, from top to bottom."""

    run_id: str
    axis: TimeAxis
    rows: TimelineRows
    is_running: bool


class TimeSpan(NamedTuple):
    """A part of a run, in seconds since its start."""

    start: float = 0.0
    end: float | None = None
    """None for the end of the run."""


WHOLE_RUN = TimeSpan()


class TimelineRows(Sequence[TimelineRow]):
    """The rows of a layout. A row is placed when it is read, because a screen shows few of thousands."""

    def __init__(self, drafts: list[tuple[RowDraft, str | None, int]], axis: TimeAxis) -> None:
        """Create the rows from their drafts, each with the id of its parent and its depth."""
        self._drafts, self._axis = drafts, axis

    def __len__(self) -> int:
        return len(self._drafts)

    @overload
    def __getitem__(self, number: int) -> TimelineRow: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[TimelineRow, ...]: ...
    def __getitem__(self, number: int | slice) -> TimelineRow | tuple[TimelineRow, ...]:
        if isinstance(number, slice):
            return tuple(place_row(*draft, self._axis) for draft in self._drafts[number])
        return place_row(*self._drafts[number], self._axis)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimelineRows) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def find(self, row_id: str) -> int | None:
        """Return the number of the row with an id."""
        return next((number for number, (draft, _, _) in enumerate(self._drafts) if draft.id == row_id), None)


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

    def overlaps(self, axis: TimeAxis) -> bool:
        """Return whether some of it is within a time axis."""
        if self.started is None:
            return False
        return self.started <= axis.ended and (self.ended is None or self.ended >= axis.started)

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

    def layout(
        self,
        now: datetime,
        expanded: Collection[str] = (),
        collapsed: Collection[str] = (),
        span: TimeSpan = WHOLE_RUN,
    ) -> TimelineLayout:
        """Return the rows at a time.

        Groups with an id in `expanded` show all of their items, and child runs with one in `collapsed` none.
        With a `span`, only the rows in it are returned.
        """
        view = self.tree.root.view
        root = self._draft_root(expanded)
        origin = root.started if root.started is not None else now.timestamp()
        last = root.ended if root.ended is not None else max(now.timestamp(), origin)
        started = min(origin + span.start, last)
        ended = last if span.end is None else min(max(origin + span.end, started), last)
        periods = (
            period
            for _, run in self._runs.values()
            for step in run.steps.values()
            for period in (*step.periods, *step.tool_calls.values())
        )
        axis = TimeAxis.of(started, ended, periods, origin)
        drafts: list[tuple[RowDraft, str | None, int]] = []
        stack: list[tuple[RowDraft, str | None, int]] = [(root, None, 0)]
        while stack:
            draft, parent_id, depth = drafted = stack.pop()
            if span != WHOLE_RUN and parent_id is not None and not draft.overlaps(axis):
                continue
            if draft.kind == "child" and draft.id in collapsed:
                draft.shown = []
            drafts.append(drafted)
            children = draft.children if draft.shown is None else draft.shown
            stack += [(child, draft.id, depth + 1) for child in reversed(children)]
        return TimelineLayout(view.run_id, axis, TimelineRows(drafts, axis), view.ended_at is None)

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
        has_children=bool(draft.children),
        is_collapsed=len(shown) < len(draft.children),
    )


def place_bars(periods: list[Period], axis: TimeAxis) -> Iterator[TimelineBar]:
    for period in periods:
        x = axis.position(period.start)
        # The delay before a retry, and the attempt after it, may lie in the future.
        if period.start > axis.ended:
            return
        if period.end is not None and period.end < axis.started:
            continue
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
