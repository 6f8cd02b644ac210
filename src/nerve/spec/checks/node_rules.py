"""Rules of single nodes and of the workflow's own fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from nerve.core.json_schema import find_schema_error
from nerve.core.suggest import did_you_mean_hint
from nerve.spec import models
from nerve.spec.walk import SpecNode
from nerve.text.source import Loc

LocatedProblem = tuple[Loc, str, str]

CONTROL_KINDS = frozenset(
    {"graph", "sequence", "while", "loop", "branch", "switch", "map", "reduce", "parallel", "machine"}
    | {"goto", "transform", "emit", "gate", "wait"}
)
"""Kinds that act on nothing themselves."""

MAX_COMPARED_NAMES = 100
"""So many names are compared with or listed; more would take long for every problem of a long text."""

PYTHON_TYPES_BY_NAME: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def is_of_type(value: Any, type: str) -> bool:
    """Whether a value is of a declared type."""
    if type == "any":
        return True
    if isinstance(value, bool):
        return type == "boolean"
    if type == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, PYTHON_TYPES_BY_NAME[type])


def with_article(type: str) -> str:
    """The name of a type with its article."""
    return f"{'an' if type[0] in 'aio' else 'a'} {type}"


def suggest_known_name(name: str, known: Collection[str]) -> str:
    """What may have been meant, if there are not too many to compare with."""
    return did_you_mean_hint(name, known) if len(known) <= MAX_COMPARED_NAMES else ""


def describe_unknown_name(message: str, name: str, known: Collection[str]) -> tuple[str, str]:
    """What is said of a name that nothing has: what may have been meant by it, or all there is."""
    close = suggest_known_name(name, known)
    return message + close, "" if close else f"There is: {format_names([*known]) or 'none'}."


def format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_COMPARED_NAMES]) + (", …" if len(names) > MAX_COMPARED_NAMES else "")


def check_declared_inputs(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for name, declared in spec.inputs.items():
        loc: Loc = ("inputs", name)
        if not name.isidentifier():
            yield loc, f"input '{name}' cannot be written in an expression", "Use letters, digits and _."
        if declared.default is not None and not is_of_type(declared.default, declared.type):
            yield (
                (*loc, "default"),
                f"the default of input '{name}' is not {with_article(declared.type)}",
                "Change one.",
            )
        if declared.required and declared.default is not None:
            yield (*loc, "required"), f"input '{name}' is required and has a default", "Drop one of them."
        if declared.choices is not None and declared.default not in (None, *declared.choices):
            yield (*loc, "default"), f"the default of input '{name}' is not one of its choices", "Add it."


def check_unique_ids(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    loc_by_id: dict[str, Loc] = {}
    for spec_node in spec_nodes:
        id = spec_node.spec.id
        if id is None:
            if (
                spec_node.ancestors
                and spec_node.ancestors[-1].kind in ("graph", "parallel")
                and spec_node.loc[-1] != "on_error"
            ):
                yield (
                    spec_node.loc,
                    f"a part of a {spec_node.ancestors[-1].kind} needs an 'id'",
                    "Give it one.",
                )
            continue
        if id in loc_by_id and not id.startswith("_"):
            yield (*spec_node.loc, "id"), f"the id '{id}' is used twice", "Rename one of them."
        loc_by_id.setdefault(id, spec_node.loc)


def check_node_shapes(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    """What must stand together, or must not."""
    for spec_node in spec_nodes:
        node, loc = spec_node.spec, spec_node.loc
        for n, check in enumerate(node.expect):
            yield from check_expectation(check, (*loc, "expect", n))
        if isinstance(node, models.CallSpec | models.PromptSpec):
            yield from check_json_schema(node.output_schema, (*loc, "output_schema"))
        match node:
            case models.PromptSpec() if (node.text is None) == (node.file is None) and not node.text:
                yield loc, "a prompt has a text or a file", "Add one of them."
            case models.WaitSpec():
                yield from check_wait(node, loc)
            case models.AssertSpec() | models.RetractSpec() if (node.fact is None) == (node.signal is None):
                yield loc, f"{spec_node.kind} has a fact or a signal", "Add one of them."
            case models.GateSpec():
                yield from check_gate_spec(node, loc)
            case models.ParallelSpec() if node.require is not None and node.require > len(node.branches):
                yield (
                    (*loc, "require"),
                    f"require={node.require}, but there are {len(node.branches)} branches",
                    "Lower it.",
                )
            case models.GraphSpec() | models.SequenceSpec() if not node.steps:
                yield loc, f"a {spec_node.kind} without steps does nothing", "Add a step."
            case models.SequenceSpec() if node.on_timeout is not None and node.timeout is None:
                yield (*loc, "on_timeout"), "on_timeout without a timeout never happens", "Add a timeout."


def check_expectation(check: models.ExpectSpec, loc: Loc) -> Iterator[LocatedProblem]:
    """A file may have a schema beside it."""
    present_keys = [
        name for name in ("file", "command", "condition", "schema") if getattr(check, name) is not None
    ]
    if len(present_keys) != 1 and present_keys != ["file", "schema"]:
        message = "a check has one of file, command, condition, schema; only a file may have a schema too"
        yield loc, message, "Split it."
    yield from check_json_schema(check.schema, (*loc, "schema"))


def check_json_schema(json_schema: dict[str, Any] | None, loc: Loc) -> Iterator[LocatedProblem]:
    if json_schema is not None and (flaw := find_schema_error(json_schema)):
        pattern = flaw.startswith("pattern ")
        yield (
            loc,
            flaw if pattern else f"this is not a valid JSON Schema: {flaw}",
            "" if pattern else "Fix it.",
        )


def check_wait(node: models.WaitSpec, loc: Loc) -> Iterator[LocatedProblem]:
    if bool(node.any) == (node.seconds is not None):
        yield loc, "a wait has conditions (any) or seconds", "Add one of them."
    for n, condition in enumerate(node.any):
        if sum(value is not None for value in (condition.signal, condition.response, condition.fact)) != 1:
            yield (*loc, "any", n), "a condition has one of signal, response, fact", "Split it."
    if node.test and node.timeout is not None:
        yield (*loc, "timeout"), "a test does not wait and needs no timeout", "Drop it."


def check_gate_spec(node: models.GateSpec, loc: Loc) -> Iterator[LocatedProblem]:
    if node.choices is not None and node.form is not None:
        yield (*loc, "form"), "a gate has choices or a form, not both", "Drop one of them."
    yield from check_json_schema(node.form, (*loc, "form"))
    if node.choices is not None and not node.choices:
        yield (*loc, "choices"), "choices is empty: nobody could answer", "Add one, or drop choices."
    known = node.choices
    for key, answers in (("reject", node.reject), ("default", [node.default] if node.default else [])):
        for answer in answers:
            if known and answer not in known:
                yield (*loc, key), f"'{answer}' is not one of the choices {known}", "Add it to choices."
    if node.default is not None and node.timeout is None:
        yield (*loc, "default"), "a default answer is taken when the time is up", "Add a timeout."


def check_policies(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for spec_node in spec_nodes:
        node, kind = spec_node.spec, spec_node.kind
        if node.idle_timeout is not None and (kind in CONTROL_KINDS or kind == "workflow"):
            yield (
                (*spec_node.loc, "idle_timeout"),
                f"idle_timeout is for leaves, not for a {kind}",
                "Use timeout.",
            )
        if node.effect is not None and kind in CONTROL_KINDS:
            yield (
                (*spec_node.loc, "effect"),
                f"effect is for leaves, not for a {kind}",
                "Move it to the leaf.",
            )
        if node.depends_on and not (spec_node.ancestors and spec_node.ancestors[-1].kind == "graph"):
            yield (*spec_node.loc, "depends_on"), "depends_on is for the steps of a graph", "Drop it."
