"""Outlines: a workflow as a tree and as a graph, for people to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.spec import models
from nerve.spec.checks.flow import Gotos, gotos_of, ways
from nerve.spec.source import Loc
from nerve.spec.walk import parts, walk

END = ""
"""The key of the end, which no box can have."""
LABELLED = frozenset({"cases", "then", "otherwise", "default", "on_error", "on_timeout"})
"""The keys of nodes that are named by the way to them: `then: build`."""


@dataclass(slots=True)
class Item:
    """One line of the tree: what it is called, what kind it is, what is to be said of it, what is in it."""

    name: str
    kind: str
    detail: str = ""
    parts: list[Item] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.detail:
            told["detail"] = self.detail
        if self.parts:
            told["parts"] = [part.to_dict() for part in self.parts]
        return told


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one box to another."""

    start: str
    end: str
    label: str = ""


@dataclass(slots=True)
class Diagram:
    """Boxes by their keys, and the ways between them."""

    boxes: dict[str, Item] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)


def outline(spec: models.WorkflowSpec, words: Mapping[str, str] | None = None) -> Item:
    """The workflow as a tree; `words` are what its notation calls some kinds of steps."""
    root = Item(spec.name, "workflow", spec.description)
    if isinstance(spec.body, models.Machine | models.Sequence | models.Graph):
        root.detail = root.detail or detail(spec.body)
        root.parts = list(inner(spec.body))
    else:
        root.parts = [item(spec.body)]
    return rename_kinds(root, words) if words else root


def rename_kinds(root: Item, words: Mapping[str, str]) -> Item:
    root.kind = words.get(root.kind, root.kind)
    for part in root.parts:
        rename_kinds(part, words)
    return root


def item(node: models.NodeBase, name: str | None = None) -> Item:
    return Item(name or node.id or kind(node), kind(node), detail(node), list(inner(node)))


def inner(node: models.NodeBase) -> Iterator[Item]:
    if isinstance(node, models.Machine):
        for n, state in enumerate(node.states):
            yield state_item(state, ("states", n))
        return
    for loc, part in parts(node):
        label = str(loc[-1]) if loc[0] in LABELLED else None
        yield item(part, f"{label}: {part.id or kind(part)}" if label else None)


def state_item(state: models.State, loc: Loc) -> Item:
    told = arrows(state)
    if state.body is None:
        return Item(state.name, "state", told)
    body = item(state.body, state.name)
    if is_condition(state):
        body.kind = "condition"
    body.detail = "  ".join(filter(None, (body.detail, told)))
    return body


def arrows(state: models.State) -> str:
    """Where a state goes, in a few signs."""
    when = {"given": "true"} if is_condition(state) else {}
    told = [
        f"→ {way.to or 'end'}" + (f" if {when.get(way.when, way.when)}" if way.when else "")
        for way in state.next
    ]
    if state.on_error:
        told.append(f"✗→ {state.on_error}")
    return ", ".join(told) or "→ end"


def is_condition(state: models.State) -> bool:
    """Whether a state does nothing but decide where to go, by what it computes."""
    return isinstance(state.body, models.Transform) and any(way.when == "given" for way in state.next)


def kind(node: models.NodeBase) -> str:
    return node.kind  # type: ignore[attr-defined, no-any-return]


def detail(node: models.NodeBase) -> str:
    """What of a node is worth a line."""
    told = _detail(node)
    if node.when is not None:
        told = f"{told} when {node.when}".strip()
    if node.depends_on:
        told = f"{told} after {', '.join(node.depends_on)}".strip()
    return told


def _detail(node: models.NodeBase) -> str:
    match node:
        case models.Call():
            return node.target
        case models.Prompt():
            who = node.agent or node.provider or ""
            return " ".join(filter(None, (who, f"{node.file}.md" if node.file else first_line(node.text))))
        case models.Bash():
            return first_line(node.command)
        case models.Gate():
            return first_line(node.prompt) + (f" [{' | '.join(node.choices)}]" if node.choices else "")
        case models.Wait():
            return f"{node.seconds} s" if node.seconds is not None else ", ".join(map(condition, node.any))
        case models.While():
            return f"while {node.condition}, at most {node.max_iterations}"
        case models.Loop():
            end = f"{node.times} times" if node.times is not None else f"until {node.until}"
            return f"{end}, at most {node.max_iterations}"
        case models.Branch():
            return f"if {node.condition}"
        case models.Switch():
            return f"by {node.key}"
        case models.MapSpec():
            return f"each of {node.over}, {node.max_parallel} at a time"
        case models.Parallel():
            return "all" if node.require is None else f"{node.require} of {len(node.branches)}"
        case models.Transform() | models.Reduce():
            return node.expression
        case models.Goto():
            return f"→ {node.state or 'end'}"
        case models.Emit():
            return node.event
        case models.WorkflowCall():
            return node.workflow
    return ""


def condition(given: models.Condition) -> str:
    if given.signal is not None:
        return f"signal {given.signal}"
    return f"answer to {given.response}" if given.response is not None else f"fact {given.fact}"


def first_line(text: str | None) -> str:
    line = (text or "").strip().split("\n", 1)[0]
    return line if len(line) <= 60 else line[:57] + "..."


def diagram(spec: models.WorkflowSpec) -> Diagram:
    """The workflow as boxes and the ways between them; parts of a box that flow nowhere are in the tree."""
    drawn = Diagram()
    draw(drawn, spec.body, "", gotos_of(list(walk(spec.body))), ("body",))
    return drawn


def draw(drawn: Diagram, node: models.NodeBase, prefix: str, gotos: Gotos, loc: Loc) -> list[str]:
    """Draw what a node is made of; the keys of its last boxes."""
    if isinstance(node, models.Machine):
        for n, state in enumerate(node.states):
            key = f"{prefix}{state.name}"
            drawn.boxes[key] = state_item(state, ("states", n))
            for where, to in ways(state, (*loc, "states", n), gotos):
                drawn.edges.append(Edge(key, f"{prefix}{to}" if to else END, label(state, where)))
            if state.terminal or not state.next:
                drawn.edges.append(Edge(key, END))
        return [END]
    if isinstance(node, models.Sequence):
        last: list[str] = []
        for n, step in enumerate(node.steps):
            first, ends = box(drawn, step, f"{prefix}{step.id or f'{kind(step)}{n + 1}'}")
            drawn.edges += [Edge(before, first) for before in last]
            last = ends
        return last
    if isinstance(node, models.Graph):
        for step in node.steps:
            box(drawn, step, f"{prefix}{step.id}")
            drawn.edges += [Edge(f"{prefix}{name}", f"{prefix}{step.id}") for name in step.depends_on]
        needed = {name for step in node.steps for name in step.depends_on}
        return [f"{prefix}{step.id}" for step in node.steps if step.id not in needed]
    return box(drawn, node, f"{prefix}{node.id or kind(node)}")[1]


def box(drawn: Diagram, node: models.NodeBase, key: str) -> tuple[str, list[str]]:
    drawn.boxes[key] = item(node)
    for loc, part in parts(node):
        inside = f"{key}.{part.id or loc[-1]}"
        drawn.edges.append(
            Edge(key, inside, str(loc[-1]) if loc[0] in ("then", "otherwise", "cases") else "")
        )
        box(drawn, part, inside)
    return key, [key]


def label(state: models.State, where: Loc) -> str:
    if where[-1] == "on_error":
        return "on error"
    if "next" in where and isinstance(n := where[-2], int):
        return state.next[n].when or ""
    return "goto"


def mermaid(spec: models.WorkflowSpec) -> str:
    """The diagram as Mermaid text."""
    drawn = diagram(spec)
    names = {key: f"n{n}" for n, key in enumerate([*drawn.boxes, END])}
    lines = ["flowchart TD"]
    for key, each in drawn.boxes.items():
        lines.append(f'    {names[key]}["{quoted(each.name)}<br/><small>{quoted(each.kind)}</small>"]')
    if any(edge.end == END for edge in drawn.edges):
        lines.append(f"    {names[END]}(((end)))")
    for edge in drawn.edges:
        if edge.start in names and edge.end in names:
            arrow = f'-->|"{quoted(edge.label)}"|' if edge.label else "-->"
            lines.append(f"    {names[edge.start]} {arrow} {names[edge.end]}")
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Text that cannot end the quotes around it or be read as markup."""
    for sign, code in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(sign, code)
    return text
