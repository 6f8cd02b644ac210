"""The graph of a workflow from a file, and the places in it to which the steps of a run belong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from nerve.core.nodes.context import escape_path_part, numbered_path
from nerve.core.run_view import NodeView
from nerve.core.step_names import plain_path_part
from nerve.lazy_dataclass import dataclass
from nerve.spec import models
from nerve.spec.builder import is_aside_test
from nerve.spec.outline import is_condition_state, node_detail, shorten_first_line
from nerve.ui.graph_model import GraphNode, RunGraph

COMPUTED_KINDS = frozenset({"transform", "reduce", "emit", "goto", "branch", "switch", "state"})
"""Kinds that may run without an event of their own."""
WHOLE_RUN_ID = "/"
"""The id of the node for a workflow that is one loop, map or decision; its path is empty."""
PATH_PART_PATTERN = re.compile(r"(.*?)(?:\[(\w+)\])?", re.DOTALL)


class EdgeStart(NamedTuple):
    """A node from which the next step is reached, and the label of the edge."""

    id: str
    label: str = ""
    is_error: bool = False


class Ends(NamedTuple):
    """The node where a drawn step begins, if it is drawn, and the nodes where it ends."""

    entry: str | None
    exits: list[EdgeStart]


@dataclass(slots=True)
class DefinitionStep:
    """A place in the definition with its path in runs, and the steps of a run that belong to it."""

    id: str
    kind: str = ""
    children: dict[str, list[DefinitionStep]] = field(default_factory=dict)
    """By name; several have the same name only in a sequence."""
    fallback: DefinitionStep | None = None
    in_order: bool = False
    """Whether the children run one after another, in this order."""
    in_map: bool = False
    """Whether several instances of it run at once."""
    instances: list[NodeView] = field(default_factory=list)

    def add_child(self, name: str) -> DefinitionStep:
        siblings = self.children.setdefault(escape_path_part(name), [])
        path = numbered_path(f"{self.id}/{escape_path_part(name)}", len(siblings) + 1)
        siblings.append(DefinitionStep(path, in_map=self.in_map))
        return siblings[-1]

    def add_fallback(self) -> DefinitionStep:
        self.fallback = DefinitionStep(f"{self.id or '/'}[fallback]", in_map=self.in_map)
        return self.fallback

    @property
    def child_steps(self) -> Iterable[DefinitionStep]:
        yield from (step for siblings in self.children.values() for step in siblings)
        if self.fallback is not None:
            yield self.fallback

    def match_steps(self, views: Iterable[NodeView]) -> None:
        """Assign the steps of a run below this place to the places in the definition."""
        for view in views:
            match = PATH_PART_PATTERN.fullmatch(view.path.rpartition("/")[2])
            name, index = match.groups() if match else (view.name, None)
            if not name and index == "fallback":
                place = self.fallback
            elif siblings := self.children.get(name):
                # Another attempt at a sequence numbers its steps further.
                number = int(index) - 1 if index and index.isdecimal() else 0
                place = siblings[number % len(siblings)]
                place = place.fallback if index == "fallback" else place
            else:
                continue
            if place is not None:
                place.instances.append(view)
                place.match_steps(view.children)


class DefinitionDrawing:
    """Draws a spec into a graph, and collects the places to which steps of a run belong."""

    def __init__(self, spec: models.WorkflowSpec) -> None:
        self.graph = RunGraph(spec.name)
        self.root = DefinitionStep("")
        self._gotos: list[list[tuple[str, str | None]]] = []
        """The gotos in each of the machines around the current step, innermost last, with their targets."""
        body = spec.body
        if isinstance(body, models.SequenceSpec | models.GraphSpec | models.MachineSpec):
            self._draw_content(body, self.root, "")
        elif isinstance(body, models.BranchSpec | models.SwitchSpec):
            self._draw_choice(body, self.root, "", WHOLE_RUN_ID)
        elif type(body) in GROUP_MODELS:
            self._draw_group(body, self.root, "", WHOLE_RUN_ID)
        else:
            self._draw_step(body, self.root.add_child(step_name(body)), "")

    def _draw_step(self, spec: models.NodeBase, step: DefinitionStep, parent: str, label: str = "") -> Ends:
        """Draw a step with its error handlers, and return where it begins and ends."""
        if is_aside_test(spec):
            return Ends(None, [])
        step.kind = spec.kind
        is_named_sequence = isinstance(spec, models.SequenceSpec) and bool(spec.id or label)
        if isinstance(spec, models.BranchSpec | models.SwitchSpec):
            ends = self._draw_choice(spec, step, parent, step.id, label)
        elif type(spec) in GROUP_MODELS or is_named_sequence:
            ends = self._draw_group(spec, step, parent, step.id, label)
        elif isinstance(spec, models.SequenceSpec):
            ends = self._draw_content(spec, step, parent)
        else:
            ends = self._draw_leaf(spec, step, parent, label)
        for handler, words in handlers_of(spec):
            # Both handlers run at the same path; a run does not record which of them it was.
            is_second = step.fallback is not None
            place = DefinitionStep(f"{step.id}[fallback]~2") if is_second else step.add_fallback()
            handled = self._draw_step(handler, place, parent)
            self._connect([exit._replace(label=words, is_error=True) for exit in ends.exits], handled.entry)
            ends = Ends(ends.entry, [*ends.exits, *handled.exits])
        return ends

    def _draw_leaf(self, spec: models.NodeBase, step: DefinitionStep, parent: str, label: str) -> Ends:
        self._add_node(spec, step.id, parent, label)
        if isinstance(spec, models.GotoSpec) and self._gotos:
            self._gotos[-1].append((step.id, spec.state))
            return Ends(step.id, [] if spec.when is None else [EdgeStart(step.id)])
        return Ends(step.id, [EdgeStart(step.id)])

    def _draw_group(
        self, spec: models.NodeBase, step: DefinitionStep, parent: str, id: str, label: str = ""
    ) -> Ends:
        """Draw a step as a box around its parts; edges end at the box."""
        self._add_node(spec, id, parent, label, is_group=True)
        self._draw_content(spec, step, id)
        return Ends(id, [EdgeStart(id)])

    def _draw_content(self, spec: models.NodeBase, step: DefinitionStep, parent: str) -> Ends:
        """Draw the parts of a step into the group that is its box, or the one around it."""
        step.kind = spec.kind
        match spec:
            case models.SequenceSpec():
                step.in_order = True
                return self._draw_sequence(spec.steps, step, parent)
            case models.GraphSpec():
                self._draw_dependencies(spec, step, parent)
            case models.ParallelSpec():
                for part in spec.branches:
                    self._draw_step(part, step.add_child(part.id or part.kind), parent)
            case models.WhileSpec() | models.LoopSpec() | models.MapSpec():
                item = step.add_child(step_name(spec))
                item.in_map = step.in_map or isinstance(spec, models.MapSpec)
                self._draw_step(spec.body, item, parent)
            case models.MachineSpec():
                self._draw_machine(spec, step, parent)
        return Ends(None, [])

    def _draw_sequence(self, specs: list[models.Node], step: DefinitionStep, parent: str) -> Ends:
        first: str | None = None
        exits: list[EdgeStart] = []
        for spec in specs:
            ends = self._draw_step(spec, step.add_child(step_name(spec)), parent)
            if ends.entry is None:
                continue
            self._connect(exits, ends.entry)
            first, exits = first or ends.entry, ends.exits
        return Ends(first, exits)

    def _draw_dependencies(self, spec: models.GraphSpec, step: DefinitionStep, parent: str) -> None:
        drawn = {
            part.id: self._draw_step(part, step.add_child(part.id or part.kind), parent)
            for part in spec.steps
        }
        for part in spec.steps:
            for name in part.depends_on:
                if name in drawn:
                    self._connect(drawn[name].exits, drawn[part.id].entry)

    def _draw_choice(
        self,
        spec: models.BranchSpec | models.SwitchSpec,
        step: DefinitionStep,
        parent: str,
        id: str,
        label: str = "",
    ) -> Ends:
        """Draw a decision, with an edge to each alternative."""
        step.kind = spec.kind
        self._add_node(spec, id, parent, label)
        cases: dict[str, models.NodeBase | None]
        if isinstance(spec, models.BranchSpec):
            cases = {"then": spec.then, "else": spec.otherwise}
        else:
            cases = {**spec.cases, "default": spec.default}
        exits: list[EdgeStart] = []
        for name, case in cases.items():
            ends = Ends(None, [])
            if case is not None:
                ends = self._draw_step(case, step.add_child(name), parent)
            if ends.entry is None:
                exits.append(EdgeStart(id, name))
            else:
                self._connect([EdgeStart(id, name)], ends.entry)
                exits += ends.exits
        return Ends(id, exits)

    def _draw_machine(self, spec: models.MachineSpec, step: DefinitionStep, parent: str) -> None:
        start = self.graph.add_node(GraphNode(f"{parent}~start", "", "start", parent=parent)).id
        self._gotos.append([])
        drawn = {state.name: self._draw_state(state, step, parent) for state in spec.states}
        end = self.graph.add_node(GraphNode(f"{parent}~end", "", "end", parent=parent)).id
        entries: dict[str | None, str | None] = {name: ends.entry for name, ends in drawn.items()}
        entries[None] = end
        first = spec.start or (spec.states[0].name if spec.states else None)
        self._connect([EdgeStart(start)], entries.get(first))
        for state in spec.states:
            exits = drawn[state.name].exits
            for transition in state.next:
                is_test = transition.when == "given" and is_condition_state(state)
                label = "true" if is_test else shorten_first_line(transition.when)
                self._connect([exit._replace(label=label) for exit in exits], entries.get(transition.to))
            if state.on_error:
                failed = [exit._replace(label="on error", is_error=True) for exit in exits]
                self._connect(failed, entries.get(state.on_error))
            if state.terminal or not state.next:
                self._connect(exits, end)
        for id, target in self._gotos.pop():
            self._connect([EdgeStart(id)], entries.get(target))

    def _draw_state(self, state: models.StateSpec, machine: DefinitionStep, parent: str) -> Ends:
        step = machine.add_child(state.name)
        if state.body is not None:
            return self._draw_step(state.body, step, parent, state.name)
        step.kind = "state"
        self.graph.add_node(GraphNode(step.id, state.name, "state", "", parent))
        return Ends(step.id, [EdgeStart(step.id)])

    def _add_node(
        self, spec: models.NodeBase, id: str, parent: str, label: str = "", is_group: bool = False
    ) -> None:
        after = ", ".join(spec.depends_on)
        detail = node_detail(spec).removesuffix(f"after {after}").strip() if after else node_detail(spec)
        name = label or plain_path_part(step_name(spec))
        self.graph.add_node(GraphNode(id, name, spec.kind, detail, parent, after, is_group))

    def _connect(self, exits: Iterable[EdgeStart], entry: str | None) -> None:
        for exit in exits:
            if entry is not None:
                self.graph.add_edge(exit.id, entry, exit.label, is_error=exit.is_error)


GROUP_MODELS = (
    models.GraphSpec,
    models.MachineSpec,
    models.ParallelSpec,
    models.WhileSpec,
    models.LoopSpec,
    models.MapSpec,
)
"""The kinds of nodes that are drawn as a box around their parts."""


def handlers_of(spec: models.NodeBase) -> Iterable[tuple[models.NodeBase, str]]:
    """Yield the nodes that handle failures of a node, each with the label of its edge."""
    if isinstance(spec.on_error, models.NodeBase):
        yield spec.on_error, "on error"
    on_timeout = getattr(spec, "on_timeout", None)
    if isinstance(on_timeout, models.NodeBase):
        yield on_timeout, "on timeout"


def step_name(spec: models.NodeBase) -> str:
    """Return the name under which a step appears in paths."""
    return spec.id or getattr(spec, "role", None) or spec.kind
