"""Rules of single nodes and of the workflow's own fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from nerve.core.schemas import flaw_of
from nerve.core.suggest import suggest
from nerve.spec import models
from nerve.spec.source import Loc
from nerve.spec.walk import Found

Wrong = tuple[Loc, str, str]

CONTROL = frozenset(
    {"graph", "sequence", "while", "loop", "branch", "switch", "map", "reduce", "parallel", "machine"}
    | {"goto", "transform", "emit", "gate", "wait"}
)
"""Kinds that act on nothing themselves."""

MANY = 100
"""So many names are compared with or listed; more would take long for every problem of a long text."""

FITS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def fits(value: Any, type: str) -> bool:
    """Whether a value is of a declared type."""
    if type == "any":
        return True
    if isinstance(value, bool):
        return type == "boolean"
    if type == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, FITS[type])


def a(type: str) -> str:
    """The name of a type with its article."""
    return f"{'an' if type[0] in 'aio' else 'a'} {type}"


def near(name: str, known: Collection[str]) -> str:
    """What may have been meant, if there are not too many to compare with."""
    return suggest(name, known) if len(known) <= MANY else ""


def unknown(message: str, name: str, known: Collection[str]) -> tuple[str, str]:
    """What is said of a name that nothing has: what may have been meant by it, or all there is."""
    close = near(name, known)
    return message + close, "" if close else f"There is: {listed([*known]) or 'none'}."


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MANY]) + (", …" if len(names) > MANY else "")


def inputs(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for name, declared in spec.inputs.items():
        loc: Loc = ("inputs", name)
        if not name.isidentifier():
            yield loc, f"input '{name}' cannot be written in an expression", "Use letters, digits and _."
        if declared.default is not None and not fits(declared.default, declared.type):
            yield (*loc, "default"), f"the default of input '{name}' is not {a(declared.type)}", "Change one."
        if declared.required and declared.default is not None:
            yield (*loc, "required"), f"input '{name}' is required and has a default", "Drop one of them."
        if declared.choices is not None and declared.default not in (None, *declared.choices):
            yield (*loc, "default"), f"the default of input '{name}' is not one of its choices", "Add it."


def ids(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    seen: dict[str, Loc] = {}
    for each in found:
        id = each.spec.id
        if id is None:
            if each.above and each.above[-1].kind in ("graph", "parallel") and each.loc[-1] != "on_error":
                yield each.loc, f"a part of a {each.above[-1].kind} needs an 'id'", "Give it one."
            continue
        if id in seen and not id.startswith("_"):
            yield (*each.loc, "id"), f"the id '{id}' is used twice", "Rename one of them."
        seen.setdefault(id, each.loc)


def shapes(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    """What must stand together, or must not."""
    for each in found:
        node, loc = each.spec, each.loc
        for n, check in enumerate(node.expect):
            yield from expectation(check, (*loc, "expect", n))
        if isinstance(node, models.Call | models.Prompt):
            yield from schema(node.output_schema, (*loc, "output_schema"))
        match node:
            case models.Prompt() if (node.text is None) == (node.file is None) and not node.text:
                yield loc, "a prompt has a text or a file", "Add one of them."
            case models.Wait():
                yield from wait(node, loc)
            case models.Assert() | models.Retract() if (node.fact is None) == (node.signal is None):
                yield loc, f"{each.kind} has a fact or a signal", "Add one of them."
            case models.Gate():
                yield from gate(node, loc)
            case models.Parallel() if node.require is not None and node.require > len(node.branches):
                yield (
                    (*loc, "require"),
                    f"require={node.require}, but there are {len(node.branches)} branches",
                    "Lower it.",
                )
            case models.Graph() | models.Sequence() if not node.steps:
                yield loc, f"a {each.kind} without steps does nothing", "Add a step."
            case models.Sequence() if node.on_timeout is not None and node.timeout is None:
                yield (*loc, "on_timeout"), "on_timeout without a timeout never happens", "Add a timeout."


def expectation(check: models.Expect, loc: Loc) -> Iterator[Wrong]:
    """A file may have a schema beside it."""
    said = [name for name in ("file", "command", "condition", "schema") if getattr(check, name) is not None]
    if len(said) != 1 and said != ["file", "schema"]:
        message = "a check has one of file, command, condition, schema; only a file may have a schema too"
        yield loc, message, "Split it."
    yield from schema(check.schema, (*loc, "schema"))


def schema(given: dict[str, Any] | None, loc: Loc) -> Iterator[Wrong]:
    if given is not None and (flaw := flaw_of(given)):
        pattern = flaw.startswith("pattern ")
        yield (
            loc,
            flaw if pattern else f"this is not a valid JSON Schema: {flaw}",
            "" if pattern else "Fix it.",
        )


def wait(node: models.Wait, loc: Loc) -> Iterator[Wrong]:
    if bool(node.any) == (node.seconds is not None):
        yield loc, "a wait has conditions (any) or seconds", "Add one of them."
    for n, condition in enumerate(node.any):
        if sum(value is not None for value in (condition.signal, condition.response, condition.fact)) != 1:
            yield (*loc, "any", n), "a condition has one of signal, response, fact", "Split it."
    if node.test and node.timeout is not None:
        yield (*loc, "timeout"), "a test does not wait and needs no timeout", "Drop it."


def gate(node: models.Gate, loc: Loc) -> Iterator[Wrong]:
    if node.choices is not None and node.form is not None:
        yield (*loc, "form"), "a gate has choices or a form, not both", "Drop one of them."
    yield from schema(node.form, (*loc, "form"))
    if node.choices is not None and not node.choices:
        yield (*loc, "choices"), "choices is empty: nobody could answer", "Add one, or drop choices."
    known = node.choices
    for key, answers in (("reject", node.reject), ("default", [node.default] if node.default else [])):
        for answer in answers:
            if known and answer not in known:
                yield (*loc, key), f"'{answer}' is not one of the choices {known}", "Add it to choices."
    if node.default is not None and node.timeout is None:
        yield (*loc, "default"), "a default answer is taken when the time is up", "Add a timeout."


def policies(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in found:
        node, kind = each.spec, each.kind
        if node.idle_timeout is not None and (kind in CONTROL or kind == "workflow"):
            yield (*each.loc, "idle_timeout"), f"idle_timeout is for leaves, not for a {kind}", "Use timeout."
        if node.effect is not None and kind in CONTROL:
            yield (*each.loc, "effect"), f"effect is for leaves, not for a {kind}", "Move it to the leaf."
        if node.depends_on and not (each.above and each.above[-1].kind == "graph"):
            yield (*each.loc, "depends_on"), "depends_on is for the steps of a graph", "Drop it."
