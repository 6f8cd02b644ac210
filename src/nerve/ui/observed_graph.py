"""The graph of a workflow function: the steps that have run, in the order in which they ran.

Python code has no definition that can be drawn. Steps of the same name are one node with a count. An edge
leads from the steps that were over to the steps that started next.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import pairwise
from math import inf

from nerve.core.run_view import NodeView
from nerve.core.step_names import plain_path_part
from nerve.ui.graph_model import GraphNode, RunGraph
from nerve.ui.progress_tree import ProgressTree, RunBranch, visible_nodes

ROUNDS_NAME = "~rounds"
"""The group of the rounds that a workflow announces."""

NoteStep = Callable[[str, RunBranch, list[NodeView]], None]
"""Receives the id of a node of the graph, and the steps of a run that it shows."""


class ObservedDrawing:
    """Draws the steps of a run, and of its child runs, into a graph."""

    def __init__(self, graph: RunGraph, tree: ProgressTree, note_step: NoteStep) -> None:
        self.graph, self.tree, self.note_step = graph, tree, note_step
        self._joins: dict[tuple[str, ...], str] = {}

    def draw_branch(self, branch: RunBranch, parent: str) -> None:
        """Draw the steps of one run into a group."""
        self._draw_levels(branch, [branch.shown_nodes], parent, branch.view.ledger.by_step())

    def find_child(self, branch: RunBranch, views: list[NodeView]) -> RunBranch | None:
        """Return the child run of the last of these steps that has one."""
        paths = (branch.prefix + view.path for view in reversed(views) if view.path)
        return next((child for path in paths if (child := self.tree.branches.get(path)) is not None), None)

    def _draw_levels(
        self, branch: RunBranch, levels: list[list[NodeView]], parent: str, agents: Container[str]
    ) -> None:
        """Draw the steps of one place; each level is one execution of the step around them."""
        visible_levels = [sorted(visible_nodes(branch, level), key=start_time) for level in levels]
        views_by_name: dict[str, list[NodeView]] = {}
        for level in visible_levels:
            for view in level:
                views_by_name.setdefault(shared_name(view), []).append(view)
        for name, views in views_by_name.items():
            self._draw_step(branch, views, f"{parent}/{name}", parent, agents)
        for level in visible_levels:
            self._draw_edges(level, parent)

    def _draw_step(
        self, branch: RunBranch, views: list[NodeView], id: str, parent: str, agents: Container[str]
    ) -> None:
        child = self.find_child(branch, views)
        inner_levels = [
            view.children for view in views if any(True for _ in visible_nodes(branch, view.children))
        ]
        kind, label, detail = "step", plain_path_part(views[0].name), ""
        if views[0].state == "round":
            kind, label, detail = "rounds", "rounds", views[-1].name
        elif child is not None:
            kind = "child"
        elif branch.view.nodes.get(views[0].path) is not views[0]:
            kind = "gate"  # of the code itself: no step has opened it
        elif any(view.path in agents for view in views):
            kind = "prompt"
        elif inner_levels:
            kind = "graph"
        is_group = kind in ("child", "graph", "rounds")
        self.graph.add_node(GraphNode(id, label, kind, detail, parent, is_group=is_group))
        self.note_step(id, branch, views)
        if child is not None:
            self.draw_branch(child, id)
        elif is_group:
            self._draw_levels(branch, inner_levels, id, agents)

    def _draw_edges(self, views: list[NodeView], parent: str) -> None:
        """Connect the steps of one level: a step follows those that were over when it started."""
        waves: list[dict[str, None]] = []
        first_end = -inf
        for view in views:
            if start_time(view) >= first_end:
                waves.append({})
                first_end = inf
            waves[-1][f"{parent}/{shared_name(view)}"] = None
            first_end = min(first_end, end_time(view))
        for before, after in pairwise(waves):
            if before != after:
                self._connect([*before], [*after], parent)

    def _connect(self, starts: list[str], ends: list[str], parent: str) -> None:
        if len(starts) > 1 and len(ends) > 1:
            key = (*starts, "", *ends)
            if key not in self._joins:
                self._joins[key] = self.graph.add_join(parent, f"join{len(self._joins) + 1}")
            self._connect(starts, [self._joins[key]], parent)
            starts = [self._joins[key]]
        for start in starts:
            for end in ends:
                if start != end:
                    self.graph.add_edge(start, end)


def start_time(view: NodeView) -> float:
    """Return when a step started, or the first step of a round; a step that has not started is last."""
    if view.state == "round":
        return min(map(start_time, view.children), default=inf)
    return view.started_at.timestamp() if view.started_at is not None else inf


def end_time(view: NodeView) -> float:
    if view.state == "round":
        return max(map(end_time, view.children), default=inf)
    return view.ended_at.timestamp() if view.ended_at is not None else inf


def shared_name(view: NodeView) -> str:
    """Return the last part of a path without its number, which steps of the same name share."""
    if view.state == "round":
        return ROUNDS_NAME
    part = view.path.rpartition("/")[2]
    return part if part.endswith("[fallback]") else part.partition("[")[0]
