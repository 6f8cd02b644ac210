"""Walking over a spec: every node with the way to it, its parts, and the expressions it carries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from nerve.spec import models
from nerve.spec.source import Loc

ItemNames = frozenset({"item", "index"})
INSIDE = {
    "map": ItemNames,
    "while": frozenset({"iteration"}),
    "loop": frozenset({"iteration"}),
}
"""What else the body of a node sees."""


@dataclass(frozen=True, slots=True)
class Found:
    """A node of a spec, the way to it, and what stands around it, outermost first."""

    spec: models.NodeBase
    loc: Loc
    above: tuple[Found, ...] = ()
    extra: frozenset[str] = frozenset()
    """The names its expressions see beside those that are always in sight."""

    @property
    def kind(self) -> str:
        return self.spec.kind  # type: ignore[attr-defined, no-any-return]

    @property
    def name(self) -> str:
        return self.spec.id or self.kind


def walk(node: models.NodeBase, loc: Loc = ("body",)) -> Iterator[Found]:
    """A node and all below it, each before its parts."""
    yield from _below(Found(node, loc))


def _below(found: Found) -> Iterator[Found]:
    yield found
    above = (*found.above, found)
    for loc, part in parts(found.spec):
        extra = found.extra | (INSIDE.get(found.kind, frozenset()) if loc == ("body",) else frozenset())
        yield from _below(Found(part, found.loc + loc, above, extra))


def hyphens(spec: models.WorkflowSpec, found: Iterable[Found]) -> frozenset[str]:
    """The names with hyphens, which expressions may write as they are: ids, and keys of the context."""
    names = itertools.chain((each.spec.id for each in found), spec.context)
    return frozenset(name for name in names if name and "-" in name)


def parts(node: models.NodeBase) -> Iterator[tuple[Loc, models.NodeBase]]:
    """The nodes inside a node, with the way to each."""
    match node:
        case models.Graph() | models.Sequence():
            yield from ((("steps", n), step) for n, step in enumerate(node.steps))
        case models.Parallel():
            yield from ((("branches", n), part) for n, part in enumerate(node.branches))
        case models.While() | models.Loop() | models.MapSpec():
            yield ("body",), node.body
        case models.Branch():
            yield ("then",), node.then
            if node.otherwise is not None:
                yield ("otherwise",), node.otherwise
        case models.Switch():
            yield from ((("cases", key), case) for key, case in node.cases.items())
            if node.default is not None:
                yield ("default",), node.default
        case models.Machine():
            for n, state in enumerate(node.states):
                if state.body is not None:
                    yield ("states", n, "body"), state.body
    if isinstance(node, models.Sequence) and isinstance(node.on_timeout, models.NodeBase):
        yield ("on_timeout",), node.on_timeout
    if isinstance(node.on_error, models.NodeBase):
        yield ("on_error",), node.on_error


Way = Literal["expression", "template", "command", "prompt"]


@dataclass(frozen=True, slots=True)
class Written:
    """An expression or a template in a node, the way to it from there, and what else it sees."""

    loc: Loc
    source: str
    way: Way = "expression"
    extra: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    """Of a command: the variables of its environment that hold values."""


def written(node: models.NodeBase) -> Iterator[Written]:
    """Everything in a node itself, and not in its parts, that is evaluated when it runs."""
    if node.when is not None:
        yield Written(("when",), node.when)
    for n, check in enumerate(node.expect):
        output = frozenset({"output"})
        if check.condition is not None:
            yield Written(("expect", n, "condition"), check.condition, extra=output)
        if check.file is not None:
            yield Written(("expect", n, "file"), check.file, "template", output)
        if check.command is not None:
            yield Written(("expect", n, "command"), check.command, "command", output)
    yield from _own(node)


def _own(node: models.NodeBase) -> Iterator[Written]:
    match node:
        case models.Call():
            yield from templates(("input",), node.input)
        case models.WorkflowCall():
            yield from templates(("input",), node.input)
            yield from templates(("params",), node.params)
        case models.Prompt():
            yield from templates(("args",), node.args)
            if node.text is not None:
                yield Written(("text",), node.text, "prompt", frozenset({"args"}))
        case models.Bash():
            yield Written(("command",), node.command, "command", variables=filled_variables(node))
            yield from templates(("input",), node.input)
            yield from templates(("env",), node.env)
            yield from templates(("cwd",), node.cwd)
        case models.Gate():
            yield Written(("prompt",), node.prompt, "template")
        case models.Wait():
            if isinstance(node.seconds, str):
                yield Written(("seconds",), node.seconds)
            for n, condition in enumerate(node.any):
                for key in ("signal", "key", "fact"):
                    yield from templates(("any", n, key), getattr(condition, key))
        case models.While():
            yield Written(("condition",), node.condition, extra=frozenset({"iteration"}))
        case models.Loop():
            if node.until is not None:
                yield Written(("until",), node.until, extra=frozenset({"iteration"}))
            if isinstance(node.times, str):
                yield Written(("times",), node.times)
        case models.Branch():
            yield Written(("condition",), node.condition)
        case models.Switch():
            yield Written(("key",), node.key)
        case models.MapSpec():
            yield Written(("over",), node.over)
        case models.Reduce():
            yield Written(("over",), node.over)
            yield Written(("expression",), node.expression, extra=frozenset({"acc"}) | ItemNames)
            yield from templates(("initial",), node.initial)
        case models.Transform():
            yield Written(("expression",), node.expression)
        case models.Emit():
            yield from templates(("data",), node.data)
        case models.Assert():
            for key in ("fact", "signal", "key", "value"):
                yield from templates((key,), getattr(node, key))
        case models.Retract():
            for key in ("fact", "signal", "key"):
                yield from templates((key,), getattr(node, key))
        case models.Machine():
            for n, state in enumerate(node.states):
                for m, way in enumerate(state.next):
                    if way.when is not None:
                        yield Written(("states", n, "next", m, "when"), way.when)


def filled_variables(node: models.Bash) -> frozenset[str]:
    """The variables of a command's environment that hold values; the run's own id and folder are none."""
    own = ("{{ run.id }}", "{{ run.artifacts }}")
    return frozenset(name for name, value in node.env.items() if "{{" in value and value not in own)


def templates(loc: Loc, value: Any) -> Iterator[Written]:
    """The strings of a JSON value that have something to fill in."""
    if isinstance(value, str):
        if "{{" in value:
            yield Written(loc, value, "template")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from templates((*loc, key), item)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from templates((*loc, n), item)


def steps_of(body: models.NodeBase) -> list[str]:
    """The steps that a body shows before it runs."""
    match body:
        case models.Machine(states=states):
            return [state.name for state in states]
        case models.Sequence(steps=steps) | models.Graph(steps=steps):
            return [step.id for step in steps if step.id]
    return [body.id] if body.id else []
