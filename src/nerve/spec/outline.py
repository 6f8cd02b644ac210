"""Outlines: a workflow as a tree and as a diagram for display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.spec import models
from nerve.spec.checks.flow import GotosByState, gotos_by_state, state_transitions
from nerve.spec.walk import child_specs, walk_spec

END_KEY = ""
"""The key of the end; no box has it."""
LABELLED_KEYS = frozenset({"cases", "then", "otherwise", "default", "on_error", "on_timeout"})
"""The keys that prefix the names of their nodes: `then: build`."""


@dataclass(slots=True)
class OutlineItem:
    """One line of the tree: its name, kind, detail and children."""

    name: str
    kind: str
    detail: str = ""
    parts: list[OutlineItem] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.detail:
            data["detail"] = self.detail
        if self.parts:
            data["parts"] = [part.to_dict() for part in self.parts]
        return data


@dataclass(slots=True)
class Diagram:
    """Boxes by key, and the edges between them, with labels."""

    boxes: dict[str, OutlineItem] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)

    def connect(self, start: str, end: str, label: str = "") -> None:
        self.edges.append((start, end, label))

    def draw_body(self, node: models.NodeBase, gotos: GotosByState) -> None:
        """Add the boxes and edges of the body of a workflow."""
        if isinstance(node, models.MachineSpec):
            for n, state in enumerate(node.states):
                key = state.name
                self.boxes[key] = state_item(state)
                for where, to in state_transitions(state, ("body", "states", n), gotos):
                    label = "on error" if where[-1] == "on_error" else "goto"
                    if "next" in where and isinstance(m := where[-2], int):
                        label = state.next[m].when or ""
                    self.connect(key, to or END_KEY, label)
                if state.terminal or not state.next:
                    self.connect(key, END_KEY)
        elif isinstance(node, models.SequenceSpec):
            keys = [step.id or f"{step.kind}{n}" for n, step in enumerate(node.steps, 1)]
            for step, key, before in zip(node.steps, keys, [None, *keys], strict=False):
                self.draw_box(step, key)
                if before is not None:
                    self.connect(before, key)
        elif isinstance(node, models.GraphSpec):
            for step in node.steps:
                self.draw_box(step, str(step.id))
                for name in step.depends_on:
                    self.connect(name, str(step.id))
        else:
            self.draw_box(node, node.id or node.kind)

    def draw_box(self, node: models.NodeBase, key: str) -> None:
        self.boxes[key] = outline_item(node)
        for loc, part in child_specs(node):
            inside = f"{key}.{part.id or loc[-1]}"
            label = str(loc[-1]) if loc[0] in ("then", "otherwise", "cases") else ""
            self.connect(key, inside, label)
            self.draw_box(part, inside)


def build_outline(spec: models.WorkflowSpec, words: Mapping[str, str] | None = None) -> OutlineItem:
    """Return the workflow as a tree; `words` maps kinds to the terms of its notation."""
    root = OutlineItem(spec.name, "workflow", spec.description)
    if isinstance(spec.body, models.MachineSpec | models.SequenceSpec | models.GraphSpec):
        root.detail = root.detail or node_detail(spec.body)
        root.parts = list(inner_items(spec.body))
    else:
        root.parts = [outline_item(spec.body)]
    return rename_kinds(root, words) if words else root


def rename_kinds(root: OutlineItem, words: Mapping[str, str]) -> OutlineItem:
    root.kind = words.get(root.kind, root.kind)
    for part in root.parts:
        rename_kinds(part, words)
    return root


def outline_item(node: models.NodeBase, name: str | None = None) -> OutlineItem:
    return OutlineItem(name or node.id or node.kind, node.kind, node_detail(node), list(inner_items(node)))


def inner_items(node: models.NodeBase) -> Iterator[OutlineItem]:
    if isinstance(node, models.MachineSpec):
        yield from map(state_item, node.states)
        return
    for loc, part in child_specs(node):
        label = str(loc[-1]) if loc[0] in LABELLED_KEYS else None
        yield outline_item(part, f"{label}: {part.id or part.kind}" if label else None)


def state_item(state: models.StateSpec) -> OutlineItem:
    when = {"given": "true"} if is_condition_state(state) else {}
    arrow_texts = [
        f"→ {transition.to or 'end'}"
        + (f" if {when.get(transition.when, transition.when)}" if transition.when else "")
        for transition in state.next
    ]
    if state.on_error:
        arrow_texts.append(f"✗→ {state.on_error}")
    arrow_text = ", ".join(arrow_texts) or "→ end"
    if state.body is None:
        return OutlineItem(state.name, "state", arrow_text)
    body = outline_item(state.body, state.name)
    if is_condition_state(state):
        body.kind = "condition"
    body.detail = "  ".join(filter(None, (body.detail, arrow_text)))
    return body


def is_condition_state(state: models.StateSpec) -> bool:
    """Whether a state only computes a value that selects the next state."""
    return isinstance(state.body, models.TransformSpec) and any(
        transition.when == "given" for transition in state.next
    )


def node_detail(node: models.NodeBase) -> str:
    """Return the most important details of a node on one line."""
    text = _kind_detail(node)
    if node.when is not None:
        text = f"{text} when {node.when}".strip()
    if node.depends_on:
        text = f"{text} after {', '.join(node.depends_on)}".strip()
    return text


def _kind_detail(node: models.NodeBase) -> str:
    match node:
        case models.CallSpec():
            return node.target
        case models.PromptSpec():
            agent = node.agent or node.provider or ""
            return " ".join(
                filter(None, (agent, f"{node.file}.md" if node.file else shorten_first_line(node.text)))
            )
        case models.BashSpec():
            return shorten_first_line(node.command)
        case models.FileSpec():
            return shorten_first_line(node.path)
        case models.GateSpec():
            return shorten_first_line(node.prompt) + (
                f" [{' | '.join(node.choices)}]" if node.choices else ""
            )
        case models.WaitSpec():
            return (
                f"{node.seconds} s" if node.seconds is not None else ", ".join(map(condition_text, node.any))
            )
        case models.WhileSpec():
            return f"while {node.condition}, at most {node.max_iterations}"
        case models.LoopSpec():
            end = f"{node.times} times" if node.times is not None else f"until {node.until}"
            return f"{end}, at most {node.max_iterations}"
        case models.BranchSpec():
            return f"if {node.condition}"
        case models.SwitchSpec():
            return f"by {node.key}"
        case models.MapSpec():
            return f"each of {node.over}, {node.max_parallel} at a time"
        case models.ParallelSpec():
            return "all" if node.require is None else f"{node.require} of {len(node.branches)}"
        case models.TransformSpec() | models.ReduceSpec():
            return node.expression
        case models.GotoSpec():
            return f"→ {node.state or 'end'}"
        case models.EmitSpec():
            return node.event
        case models.WorkflowCallSpec():
            return node.workflow
    return ""


def condition_text(wait_condition: models.ConditionSpec) -> str:
    if wait_condition.signal is not None:
        return f"signal {wait_condition.signal}"
    return (
        f"answer to {wait_condition.response}"
        if wait_condition.response is not None
        else f"fact {wait_condition.fact}"
    )


def shorten_first_line(text: str | None) -> str:
    line = (text or "").strip().split("\n", 1)[0]
    return line if len(line) <= 60 else line[:57] + "..."


def format_mermaid(spec: models.WorkflowSpec) -> str:
    """Return the diagram as Mermaid text."""
    workflow_diagram = Diagram()
    workflow_diagram.draw_body(spec.body, gotos_by_state(list(walk_spec(spec.body))))
    names = {key: f"n{n}" for n, key in enumerate([*workflow_diagram.boxes, END_KEY])}
    lines = ["flowchart TD"]
    for key, box_item in workflow_diagram.boxes.items():
        lines.append(
            f'    {names[key]}["{escape_mermaid(box_item.name)}<br/><small>{escape_mermaid(box_item.kind)}'
            '</small>"]'
        )
    if any(end == END_KEY for _, end, _ in workflow_diagram.edges):
        lines.append(f"    {names[END_KEY]}(((end)))")
    for start, end, label in workflow_diagram.edges:
        if start in names and end in names:
            arrow = f'-->|"{escape_mermaid(label)}"|' if label else "-->"
            lines.append(f"    {names[start]} {arrow} {names[end]}")
    return "\n".join(lines) + "\n"


def escape_mermaid(text: str) -> str:
    """Escape text for a quoted Mermaid label."""
    for sign, code in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(sign, code)
    return text
