"""Walk over a spec: nodes with their locations, children and embedded texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal

from nerve.lazy_dataclass import dataclass
from nerve.spec import models
from nerve.text.source import Loc

ITEM_NAMES = frozenset({"item", "index"})
NAMES_IN_BODY = {
    "map": ITEM_NAMES,
    "while": frozenset({"iteration"}),
    "loop": frozenset({"iteration"}),
}
"""The additional names that the body of a node can read."""


@dataclass(frozen=True, slots=True)
class SpecNode:
    """A node of a spec with its location and its ancestors, outermost first."""

    spec: models.NodeBase
    loc: Loc
    ancestors: tuple[SpecNode, ...] = ()
    extra_names: frozenset[str] = frozenset()
    """The names that its expressions can read in addition to those that are always visible."""

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def name(self) -> str:
        return self.spec.id or self.kind


def walk_spec(body: models.NodeBase) -> Iterator[SpecNode]:
    """Yield the body of a workflow and all its descendants, parents first."""
    yield from _walk_below(SpecNode(body, ("body",)))


def _walk_below(spec_node: SpecNode) -> Iterator[SpecNode]:
    yield spec_node
    ancestors = (*spec_node.ancestors, spec_node)
    for loc, part in child_specs(spec_node.spec):
        extra = spec_node.extra_names | (
            NAMES_IN_BODY.get(spec_node.kind, frozenset()) if loc == ("body",) else frozenset()
        )
        yield from _walk_below(SpecNode(part, spec_node.loc + loc, ancestors, extra))


def hyphenated_names(spec: models.WorkflowSpec, spec_nodes: Iterable[SpecNode]) -> frozenset[str]:
    """Return the names with hyphens that expressions may use: ids, and keys of the context."""
    names = itertools.chain((spec_node.spec.id for spec_node in spec_nodes), spec.context)
    return frozenset(name for name in names if name and "-" in name)


CHILD_KEYS = (
    *("steps", "branches", "body", "then", "otherwise", "cases", "default", "states"),
    *("on_timeout", "on_error", "on_conflict", "workspace"),
)
"""The fields of a node that can contain other nodes, in the order of a walk."""


@cache
def child_keys_of(kind: type[models.NodeBase]) -> tuple[str, ...]:
    return tuple(key for key in CHILD_KEYS if key in kind.model_fields)


def child_specs(node: models.NodeBase) -> Iterator[tuple[Loc, models.NodeBase]]:
    """Yield the children of a node with their relative locations."""
    for key in child_keys_of(type(node)):
        value = getattr(node, key)
        if isinstance(value, models.NodeBase):
            yield (key,), value
        elif isinstance(value, models.WorkspaceSpec):
            if isinstance(value.on_conflict, models.NodeBase):
                yield (key, "on_conflict"), value.on_conflict
        elif isinstance(value, list | dict):
            for index, item in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(item, models.NodeBase):
                    yield (key, index), item
                elif item.body is not None:
                    yield (key, index, "body"), item.body


TextKind = Literal["expression", "template", "command", "prompt"]


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """An expression or a template in a node, its relative location, and additional names it can read."""

    loc: Loc
    source: str
    kind: TextKind = "expression"
    extra_names: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    """For a command: the environment variables that hold values."""


def embedded_texts(node: models.NodeBase) -> Iterator[EmbeddedText]:
    """Yield the texts of a node, without its children, that are evaluated when it runs."""
    if node.when is not None:
        yield EmbeddedText(("when",), node.when)
    for n, check in enumerate(node.expect):
        output = frozenset({"output"})
        if check.condition is not None:
            yield EmbeddedText(("expect", n, "condition"), check.condition, extra_names=output)
        if check.file is not None:
            yield EmbeddedText(("expect", n, "file"), check.file, "template", output)
        if check.command is not None:
            yield EmbeddedText(("expect", n, "command"), check.command, "command", output)
    if isinstance(workspace := node.workspace, models.WorkspaceSpec):
        for key in ("base", "branch"):
            yield from find_templates(("workspace", key), getattr(workspace, key))
    yield from _own_texts(node)


EXPRESSION_KEYS = {
    "wait": ("seconds",),
    "while": ("condition",),
    "loop": ("until", "times"),
    "branch": ("condition",),
    "switch": ("key",),
    "map": ("over",),
    "reduce": ("over", "expression"),
    "transform": ("expression",),
}
"""The fields of each kind that are expressions, if they are strings."""
TEMPLATE_KEYS = {
    "call": ("input", "cwd", "env", "system"),
    "workflow": ("input", "params"),
    "prompt": ("args", "cwd", "env", "system"),
    "bash": ("input", "env", "cwd"),
    "gate": ("prompt",),
    "cancel": ("reason",),
    "reduce": ("initial",),
    "emit": ("data",),
    "assert": ("fact", "signal", "key", "value"),
    "retract": ("fact", "signal", "key"),
    "merge": ("of",),
}
"""The fields of each kind whose strings are templates."""
NAMES_IN_EXPRESSION = {
    ("while", "condition"): NAMES_IN_BODY["while"],
    ("loop", "until"): NAMES_IN_BODY["loop"],
    ("reduce", "expression"): ITEM_NAMES | {"acc"},
}
"""The additional names that an expression of a node can read."""


def _own_texts(node: models.NodeBase) -> Iterator[EmbeddedText]:
    kind = node.kind
    for key in EXPRESSION_KEYS.get(kind, ()):
        if isinstance(source := getattr(node, key), str):
            names = NAMES_IN_EXPRESSION.get((kind, key), frozenset())
            yield EmbeddedText((key,), source, extra_names=names)
    for key in TEMPLATE_KEYS.get(kind, ()):
        yield from find_templates((key,), getattr(node, key))
    match node:
        case models.PromptSpec(text=str() as text):
            yield EmbeddedText(("text",), text, "prompt", frozenset({"args"}))
        case models.FileSpec():
            yield EmbeddedText(("path",), node.path, "prompt")
        case models.BashSpec():
            yield EmbeddedText(("command",), node.command, "command", variables=filled_variables(node))
        case models.WaitSpec():
            for n, condition in enumerate(node.any):
                for key in ("signal", "key", "fact"):
                    yield from find_templates(("any", n, key), getattr(condition, key))
        case models.MachineSpec():
            for n, state in enumerate(node.states):
                for m, transition in enumerate(state.next):
                    if transition.when is not None:
                        yield EmbeddedText(("states", n, "next", m, "when"), transition.when)


def filled_variables(node: models.BashSpec) -> frozenset[str]:
    """Return the environment variables that hold values.

    The run id, its artifacts folder and trusted variables do not count.
    """
    run_templates = ("{{ run.id }}", "{{ run.artifacts }}")
    return frozenset(
        name
        for name, value in node.env.items()
        if "{{" in value and value not in run_templates and name not in node.trusted
    )


def find_templates(loc: Loc, value: Any) -> Iterator[EmbeddedText]:
    """Yield the strings of a JSON value that contain expressions."""
    if isinstance(value, str):
        if "{{" in value:
            yield EmbeddedText(loc, value, "template")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from find_templates((*loc, key), item)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from find_templates((*loc, n), item)


def visible_steps(body: models.NodeBase) -> list[str]:
    """Return the ids of the top-level steps of a body."""
    match body:
        case models.MachineSpec(states=states):
            return [state.name for state in states]
        case models.SequenceSpec(steps=steps) | models.GraphSpec(steps=steps):
            return [step.id for step in steps if step.id]
    return [body.id] if body.id else []
