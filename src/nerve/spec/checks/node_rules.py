"""Checks of single nodes and of the fields of the workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from nerve.core.json_schema import find_schema_error
from nerve.core.suggest import did_you_mean_hint
from nerve.project.agent_settings import STEP_SETTING_KEYS, parse_setting
from nerve.spec import models
from nerve.spec.walk import SpecNode
from nerve.text import clip_names
from nerve.text.source import Loc

LocatedProblem = tuple[Loc, str, str]
"""The location of a problem in the document, its message, and the fix."""

CONTROL_KINDS = frozenset(
    {"graph", "sequence", "while", "loop", "branch", "switch", "map", "reduce", "parallel", "machine"}
    | {"goto", "transform", "emit", "gate", "cancel", "wait"}
)
"""Kinds without an effect of their own."""

MAX_COMPARED_NAMES = 100
"""The number of names that are compared or listed; more would slow down long documents."""

PYTHON_TYPES_BY_NAME: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def is_of_type(value: Any, type: str) -> bool:
    """Whether a value has a declared type."""
    if type == "any":
        return True
    if isinstance(value, bool):
        return type == "boolean"
    if type == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, PYTHON_TYPES_BY_NAME[type])


def with_article(type: str) -> str:
    """Return the name of a type with its article."""
    return f"{'an' if type[0] in 'aio' else 'a'} {type}"


def suggest_known_name(name: str, known: Collection[str]) -> str:
    """Return a suggestion for a misspelled name; empty if there are too many candidates."""
    return did_you_mean_hint(name, known) if len(known) <= MAX_COMPARED_NAMES else ""


def describe_unknown_name(message: str, name: str, known: Collection[str]) -> tuple[str, str]:
    """Return a message with a suggestion, or with the list of known names as the fix."""
    close = suggest_known_name(name, known)
    return message + close, "" if close else f"Known: {format_names([*known]) or 'none'}."


def format_names(names: Sequence[str]) -> str:
    return clip_names(names, MAX_COMPARED_NAMES)


def check_declared_inputs(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for name, declared in spec.inputs.items():
        loc: Loc = ("inputs", name)
        if not name.isidentifier():
            yield loc, f"Input name '{name}' is not valid in an expression", "Use letters, digits and _."
        if declared.default is not None and not is_of_type(declared.default, declared.type):
            yield (
                (*loc, "default"),
                f"The default of input '{name}' must be {with_article(declared.type)},"
                f" got {declared.default!r}",
                "Change the default or the type.",
            )
        if declared.required and declared.default is not None:
            yield (*loc, "required"), f"Input '{name}' is required but has a default", "Remove one of them."
        if declared.choices is not None and declared.default not in (None, *declared.choices):
            yield (
                (*loc, "default"),
                f"The default of input '{name}' is not one of its choices",
                "Add it to choices.",
            )


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
                    f"A part of a {spec_node.ancestors[-1].kind} needs an 'id'",
                    "Add an id.",
                )
            continue
        if id in loc_by_id and not id.startswith("_"):
            yield (*spec_node.loc, "id"), f"Duplicate id '{id}'", "Rename one of them."
        loc_by_id.setdefault(id, spec_node.loc)


def check_node_shapes(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    """Yield fields of a node that are missing or exclude each other."""
    for spec_node in spec_nodes:
        node, loc = spec_node.spec, spec_node.loc
        for n, check in enumerate(node.expect):
            yield from check_expectation(check, (*loc, "expect", n))
        if isinstance(node, models.CallSpec | models.PromptSpec):
            yield from check_json_schema(node.output_schema, (*loc, "output_schema"))
            yield from check_agent_settings(node, loc)
        match node:
            case models.PromptSpec() if (node.text is None) == (node.file is None) and not node.text:
                yield loc, "A prompt needs a text or a file", "Add one of them."
            case models.WaitSpec():
                yield from check_wait(node, loc)
            case models.AssertSpec() | models.RetractSpec() if (node.fact is None) == (node.signal is None):
                yield loc, f"{spec_node.kind} needs either a fact or a signal", "Give exactly one of them."
            case models.GateSpec():
                yield from check_gate_spec(node, loc)
            case models.ParallelSpec() if node.require is not None and node.require > len(node.branches):
                yield (
                    (*loc, "require"),
                    f"require must be at most {len(node.branches)} (the branches), got {node.require}",
                    "Lower it.",
                )
            case models.GraphSpec() | models.SequenceSpec() if not node.steps:
                yield loc, f"A {spec_node.kind} needs at least one step", "Add a step."
            case models.SequenceSpec() if node.on_timeout is not None and node.timeout is None:
                yield (*loc, "on_timeout"), "on_timeout has no effect without a timeout", "Add a timeout."


def check_agent_settings(node: models.AgentNodeBase, loc: Loc) -> Iterator[LocatedProblem]:
    for name, value in agent_settings_of(node).items():
        try:
            parse_setting(name, value)
        except ValueError as error:
            yield (*loc, name), str(error), ""


def agent_settings_of(node: models.AgentNodeBase) -> dict[str, Any]:
    """Return the settings that a step has for its agent, as plain data."""
    present = {name for name in STEP_SETTING_KEYS if getattr(node, name) is not None}
    return node.model_dump(mode="json", include=present, exclude_none=True)


def check_expectation(check: models.ExpectSpec, loc: Loc) -> Iterator[LocatedProblem]:
    """Yield the problems of an `expect` check; a file may be combined with a schema."""
    present_keys = [
        name for name in ("file", "command", "condition", "schema") if getattr(check, name) is not None
    ]
    if len(present_keys) != 1 and present_keys != ["file", "schema"]:
        message = "A check needs one of file, command, condition, schema; only a file can have a schema too"
        yield loc, message, "Split it into several checks."
    yield from check_json_schema(check.schema, (*loc, "schema"))


def check_json_schema(json_schema: dict[str, Any] | None, loc: Loc) -> Iterator[LocatedProblem]:
    if json_schema is not None and (error := find_schema_error(json_schema)):
        is_pattern = error.startswith("pattern ")
        yield (
            loc,
            error if is_pattern else f"Invalid JSON Schema: {error}",
            "" if is_pattern else "Fix the schema.",
        )


def check_wait(node: models.WaitSpec, loc: Loc) -> Iterator[LocatedProblem]:
    if bool(node.any) == (node.seconds is not None):
        yield loc, "A wait needs either conditions (any) or seconds", "Give exactly one of them."
    for n, condition in enumerate(node.any):
        if sum(value is not None for value in (condition.signal, condition.response, condition.fact)) != 1:
            yield (
                (*loc, "any", n),
                "A condition needs exactly one of signal, response, fact",
                "Split it into several conditions.",
            )
    if node.test and node.timeout is not None:
        yield (*loc, "timeout"), "A test does not wait, so timeout has no effect", "Remove it."


def check_gate_spec(node: models.GateSpec, loc: Loc) -> Iterator[LocatedProblem]:
    if node.choices is not None and node.form is not None:
        yield (*loc, "form"), "A gate cannot have both choices and a form", "Remove one of them."
    yield from check_json_schema(node.form, (*loc, "form"))
    if node.choices is not None and not node.choices:
        yield (*loc, "choices"), "choices must not be empty", "Add a choice, or remove choices."
    known = node.choices
    for key, answers in (("reject", node.reject), ("default", [node.default] if node.default else [])):
        for answer in answers:
            if known and answer not in known:
                yield (*loc, key), f"'{answer}' is not one of the choices {known}", "Add it to choices."
    yield from check_gate_policy(node, loc)
    if node.default is not None and node.timeout is None:
        yield (*loc, "default"), "A default answer has no effect without a timeout", "Add a timeout."


def check_gate_policy(node: models.GateSpec, loc: Loc) -> Iterator[LocatedProblem]:
    """Yield the problem of the settings of a gate that several people decide."""
    settings = node.model_dump(include=models.GATE_POLICY_KEYS, exclude_defaults=True)
    if not settings:
        return
    from nerve.core.gate_policy import read_gate_policy  # few gates have a policy

    try:
        read_gate_policy("a gate", settings, node.reject, node.choices is not None)
    except ValueError as error:
        key = next((name for name in settings if str(error).startswith(f"{name} of ")), None)
        message, _, fix = str(error).partition(". ")
        yield (loc if key is None else (*loc, key)), message, f"{fix or 'See the guide: Gates for teams'}."


def check_policies(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for spec_node in spec_nodes:
        node, kind = spec_node.spec, spec_node.kind
        if node.idle_timeout is not None and (kind in CONTROL_KINDS or kind == "workflow"):
            yield (
                (*spec_node.loc, "idle_timeout"),
                f"idle_timeout is only allowed on leaf nodes, not on a {kind}",
                "Use timeout.",
            )
        if node.effect is not None and kind in CONTROL_KINDS:
            yield (
                (*spec_node.loc, "effect"),
                f"effect is only allowed on leaf nodes, not on a {kind}",
                "Move it to the leaf node.",
            )
        if node.depends_on and not (spec_node.ancestors and spec_node.ancestors[-1].kind == "graph"):
            yield (
                (*spec_node.loc, "depends_on"),
                "depends_on is only allowed on steps of a graph",
                "Remove it.",
            )
