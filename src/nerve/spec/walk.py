"""Walk over a spec: nodes with their locations, children and embedded texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

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
        return self.spec.kind  # type: ignore[attr-defined, no-any-return]

    @property
    def name(self) -> str:
        return self.spec.id or self.kind


def walk_spec(node: models.NodeBase, loc: Loc = ("body",)) -> Iterator[SpecNode]:
    """Yield a node and all its descendants, parents first."""
    yield from _walk_below(SpecNode(node, loc))


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


def child_specs(node: models.NodeBase) -> Iterator[tuple[Loc, models.NodeBase]]:
    """Yield the children of a node with their relative locations."""
    match node:
        case models.GraphSpec() | models.SequenceSpec():
            yield from ((("steps", n), step) for n, step in enumerate(node.steps))
        case models.ParallelSpec():
            yield from ((("branches", n), part) for n, part in enumerate(node.branches))
        case models.WhileSpec() | models.LoopSpec() | models.MapSpec():
            yield ("body",), node.body
        case models.BranchSpec():
            yield ("then",), node.then
            if node.otherwise is not None:
                yield ("otherwise",), node.otherwise
        case models.SwitchSpec():
            yield from ((("cases", key), case) for key, case in node.cases.items())
            if node.default is not None:
                yield ("default",), node.default
        case models.MachineSpec():
            for n, state in enumerate(node.states):
                if state.body is not None:
                    yield ("states", n, "body"), state.body
    if isinstance(node, models.SequenceSpec) and isinstance(node.on_timeout, models.NodeBase):
        yield ("on_timeout",), node.on_timeout
    if isinstance(node.on_error, models.NodeBase):
        yield ("on_error",), node.on_error


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
    yield from _own_texts(node)


def _own_texts(node: models.NodeBase) -> Iterator[EmbeddedText]:
    match node:
        case models.CallSpec():
            yield from find_templates(("input",), node.input)
        case models.WorkflowCallSpec():
            yield from find_templates(("input",), node.input)
            yield from find_templates(("params",), node.params)
        case models.PromptSpec():
            yield from find_templates(("args",), node.args)
            if node.text is not None:
                yield EmbeddedText(("text",), node.text, "prompt", frozenset({"args"}))
        case models.BashSpec():
            yield EmbeddedText(("command",), node.command, "command", variables=filled_variables(node))
            yield from find_templates(("input",), node.input)
            yield from find_templates(("env",), node.env)
            yield from find_templates(("cwd",), node.cwd)
        case models.GateSpec():
            yield EmbeddedText(("prompt",), node.prompt, "template")
        case models.WaitSpec():
            if isinstance(node.seconds, str):
                yield EmbeddedText(("seconds",), node.seconds)
            for n, condition in enumerate(node.any):
                for key in ("signal", "key", "fact"):
                    yield from find_templates(("any", n, key), getattr(condition, key))
        case models.WhileSpec():
            yield EmbeddedText(("condition",), node.condition, extra_names=frozenset({"iteration"}))
        case models.LoopSpec():
            if node.until is not None:
                yield EmbeddedText(("until",), node.until, extra_names=frozenset({"iteration"}))
            if isinstance(node.times, str):
                yield EmbeddedText(("times",), node.times)
        case models.BranchSpec():
            yield EmbeddedText(("condition",), node.condition)
        case models.SwitchSpec():
            yield EmbeddedText(("key",), node.key)
        case models.MapSpec():
            yield EmbeddedText(("over",), node.over)
        case models.ReduceSpec():
            yield EmbeddedText(("over",), node.over)
            yield EmbeddedText(("expression",), node.expression, extra_names=frozenset({"acc"}) | ITEM_NAMES)
            yield from find_templates(("initial",), node.initial)
        case models.TransformSpec():
            yield EmbeddedText(("expression",), node.expression)
        case models.EmitSpec():
            yield from find_templates(("data",), node.data)
        case models.AssertSpec():
            for key in ("fact", "signal", "key", "value"):
                yield from find_templates((key,), getattr(node, key))
        case models.RetractSpec():
            for key in ("fact", "signal", "key"):
                yield from find_templates((key,), getattr(node, key))
        case models.MachineSpec():
            for n, state in enumerate(node.states):
                for m, transition in enumerate(state.next):
                    if transition.when is not None:
                        yield EmbeddedText(("states", n, "next", m, "when"), transition.when)


def filled_variables(node: models.BashSpec) -> frozenset[str]:
    """Return the environment variables that hold values; the run id and its artifacts folder do not count."""
    run_templates = ("{{ run.id }}", "{{ run.artifacts }}")
    return frozenset(name for name, value in node.env.items() if "{{" in value and value not in run_templates)


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
