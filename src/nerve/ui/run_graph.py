"""The graph of a run: its definition, or the steps that its code has called, with the states of its steps.

`build_run_graph` takes what a client returns: the `spec` of `client.definition(run=…)` or
`client.workflow(workflow=…)`, and a progress tree of the events of the run and its child runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nerve.core.run_view import BUSY_NODE_STATES, NodeView
from nerve.spec.models import WorkflowSpec
from nerve.ui.definition_graph import COMPUTED_KINDS, WHOLE_RUN_ID, DefinitionDrawing, DefinitionStep
from nerve.ui.formatting import format_duration_between
from nerve.ui.graph_model import GraphNode, RunGraph, StepStatus, format_counts, most_important_state
from nerve.ui.observed_graph import ObservedDrawing
from nerve.ui.progress_tree import ProgressTree, RunBranch

ENDED_RUN_STATES = frozenset({"completed", "failed", "cancelled"})
OPENED_FIRST = ("waiting", "failed", "running", "retrying")
"""States of repeated steps by which one of them is opened first."""
LOOP_KINDS = frozenset({"loop", "while"})


def build_run_graph(spec: Mapping[str, Any] | None, tree: ProgressTree | None = None) -> RunGraph:
    """Return the graph of a definition, or without one of the steps so far, with the states of a run."""
    drawing = DefinitionDrawing(WorkflowSpec.model_validate(spec)) if spec is not None else None
    graph = drawing.graph if drawing is not None else RunGraph()
    if tree is not None and "" in tree.branches:
        branch = tree.root
        graph.run_id, graph.state = branch.run_id, branch.view.state
        graph.title = graph.title or branch.view.workflow_id
        overlay = StateOverlay(graph, tree)
        if drawing is None:
            overlay.observed.draw_branch(branch, "")
        else:
            place = drawing.root
            if WHOLE_RUN_ID in graph.nodes:
                place.instances.append(whole_run_view(branch))
            place.match_steps(branch.view.tree)
            overlay.apply_definition(place)
    graph.fold_large_levels()
    graph.collapse_groups()
    return graph


class StateOverlay:
    """Sets the states of the nodes of a graph from the progress of a run and its child runs."""

    def __init__(self, graph: RunGraph, tree: ProgressTree) -> None:
        self.graph, self.tree = graph, tree
        self.observed = ObservedDrawing(graph, tree, self._note_observed)
        self._is_over = tree.root.view.state in ENDED_RUN_STATES

    def _note_observed(self, id: str, branch: RunBranch, views: list[NodeView]) -> None:
        if views[0].state == "round":
            inner = [view for round_view in views for view in round_view.children]
            state = most_important_state(view.state for view in inner if view.state in BUSY_NODE_STATES)
            last = inner[-1].state if inner else "pending"
            self.graph.states[id] = StepStatus(state if state != "pending" else last, views[-1].name)
            return
        status = summarize_views(views, "step", in_map=False)
        if len(views) > 1:
            status.text = format_counts(Counter(view.state for view in views), len(views))
        status.run = branch.run_id if branch.prefix else ""
        self.graph.states[id] = status

    def apply_definition(self, step: DefinitionStep) -> StepStatus | None:
        """Set the states of a step of the definition and of the steps in it; return its own."""
        own = summarize_views(step.instances, step.kind, step.in_map) if step.instances else None
        if own is not None and step.kind == "map":
            own.text = format_map_progress(step.instances[-1])
        inner = [(child, self.apply_definition(child)) for child in step.child_steps]
        if step.in_order:
            self._settle_passed_steps(inner, own)
        id = step.id or WHOLE_RUN_ID
        if own is None and self._is_over and id in self.graph.nodes:
            own = StepStatus("skipped")
        node = self.graph.nodes.get(id)
        if node is not None and own is not None:
            self.graph.states[id] = own
            self._draw_child_run(node, step)
        return own

    def _settle_passed_steps(
        self, inner: list[tuple[DefinitionStep, StepStatus | None]], own: StepStatus | None
    ) -> None:
        """Complete the steps of a sequence that a later step has followed.

        A step that only computes a value has no events, and the last state of a machine has no event of
        its end.
        """
        is_passed = own is not None and own.state == "completed"
        for step, status in reversed(inner):
            if is_passed and step.id in self.graph.nodes:
                if step.kind in COMPUTED_KINDS and not step.instances:
                    self.graph.states[step.id] = StepStatus("completed")
                elif status is not None and status.state == "running" and step.instances[-1].ended_at is None:
                    complete_unrecorded(self.graph, step)
            is_passed = is_passed or (status is not None and status.state not in ("pending", "skipped"))

    def _draw_child_run(self, node: GraphNode, step: DefinitionStep) -> None:
        child = self.observed.find_child(self.tree.root, step.instances)
        if child is not None and not node.is_group:
            node.is_group, node.kind = True, "child"
            self.observed.draw_branch(child, node.id)


def complete_unrecorded(graph: RunGraph, step: DefinitionStep) -> None:
    """Complete a step, and the last steps in it, whose end has no event."""
    if step.id in graph.states and not step.instances[-1].has_own_events:
        graph.states[step.id].state = "completed"
    for child in step.child_steps:
        if child.id in graph.states and graph.states[child.id].state == "running":
            complete_unrecorded(graph, child)


def summarize_views(views: list[NodeView], kind: str, in_map: bool) -> StepStatus:
    """Return the status of a node that shows these steps of a run, in the order in which they ran."""
    started = [view for view in views if view.state != "pending"] or views
    last = started[-1]
    state = last.state
    if in_map:
        state = most_important_state(view.state for view in started)
    elif busy := [view.state for view in started if view.state in BUSY_NODE_STATES]:
        state = most_important_state(busy)
    important = (view for wanted in OPENED_FIRST for view in started if view.state == wanted)
    texts = []
    if len(started) > 1:
        counts = Counter(view.state for view in started)
        texts.append(format_counts(counts, len(started)) if in_map else f"{len(started)} times")
    elif kind in LOOP_KINDS and last.iteration:
        texts.append(
            f"iteration {last.iteration}" + (f" of {last.max_iterations}" if last.max_iterations else "")
        )
    if last.attempts > 1:
        texts.append(f"{last.attempts} attempts")
    if last.held:
        texts.append(last.held)
    time = ""
    if last.ended_at is not None and len(started) == 1:
        time = format_duration_between(last.started_at, last.ended_at, datetime.now(UTC))
    return StepStatus(state, ", ".join(texts), time, next(important, last).path)


def format_map_progress(view: NodeView) -> str:
    """Format how many items of a map are done."""
    items = [child for child in view.children if child.state != "pending"]
    return format_counts(Counter(item.state for item in items), view.max_iterations)


def whole_run_view(branch: RunBranch) -> NodeView:
    """Return the run itself as a step."""
    view = branch.view
    state = view.state if view.state in (*BUSY_NODE_STATES, *ENDED_RUN_STATES) else "running"
    return NodeView("", view.workflow_id, state, ended_at=view.ended_at, children=view.tree)
