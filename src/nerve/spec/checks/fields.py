"""Fields of answers: what conditions read of them, and what a `success` in them comes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nerve.expr import ExprError, compile
from nerve.spec import models
from nerve.spec.checks.names import CHILD
from nerve.spec.checks.rules import Wrong, near
from nerve.spec.checks.texts import is_condition
from nerve.spec.source import Document, Loc
from nerve.spec.walk import Found, Written, hyphens, written

OF_THE_STEP = frozenset({"success", "output", "error", "attributes", "status", "length"})
OF_THE_AGENT = frozenset(
    {"provider", "thread", "model", "tools", "usage", "totals", "instead_of", "dropped_characters"}
    | {"skipped", "error_type", "timed_out"}
)
"""Attributes of a step that an agent did, which `context.<id>` has beside its data."""
CONDITIONS = frozenset({"when", "condition", "until"})


def find_undeclared_fields(
    document: Document, spec: models.WorkflowSpec, found: list[Found]
) -> Iterator[Wrong]:
    """Fields of an agent's answer that a condition reads and no schema of the answer has."""
    named = by_id(found)
    for loc, paths in paths_of_conditions(document, spec, found):
        for id, field in sorted(fields_read(paths)):
            if id in named and (wrong := describe_missing_field(id, field, named[id])):
                yield loc, *wrong


def find_undecided_success(
    document: Document, spec: models.WorkflowSpec, found: list[Found]
) -> Iterator[Wrong]:
    """Conditions on the `success` of an agent whose answer need not say it."""
    named = by_id(found)
    for loc, paths in paths_of_conditions(document, spec, found):
        read = {path[1] for path in paths if path[0] in ("context", "steps") and path[2:3] == ("success",)}
        for id in sorted(read & named.keys()):
            if describe_missing_field(id, "success", named[id]):
                message = f"an answer of '{id}' that is not JSON with success: false counts as a success"
                yield loc, message, f"Add 'success' to output_schema of '{id}' if the answer is to decide."


def by_id(found: list[Found]) -> dict[str, list[models.NodeBase]]:
    """The nodes that have an id, by their ids."""
    named: dict[str, list[models.NodeBase]] = {}
    for each in found:
        if each.spec.id:
            named.setdefault(each.spec.id, []).append(each.spec)
    return named


def paths_of_conditions(
    document: Document, spec: models.WorkflowSpec, found: list[Found]
) -> Iterator[tuple[Loc, frozenset[tuple[str, ...]]]]:
    """What each condition reads, with the place of the condition."""
    hyphenated = hyphens(spec, found)
    for each in found:
        for text in written(each.spec):
            if decides(text) or (text.loc == ("expression",) and is_condition(document, each)):
                try:
                    yield each.loc + text.loc, compile(text.source, hyphens=hyphenated).paths
                except ExprError:
                    continue


def decides(text: Written) -> bool:
    """Whether an expression only decides where to go; `expect` looks at its own step."""
    return text.way == "expression" and text.loc[-1] in CONDITIONS and text.loc[0] != "expect"


def fields_read(paths: frozenset[tuple[str, ...]]) -> set[tuple[str, str]]:
    """The steps that a condition reads, each with the field of its answer."""
    found = set()
    for path in paths:
        match path:
            case ("context", id, field, *_) if field not in OF_THE_STEP | OF_THE_AGENT:
                found.add((id, field))
            case ("results", id, field, *_) | ("steps", id, "output", field, *_):
                found.add((id, field))
    return {(id, field) for id, field in found if field not in ("length", "error")}


def describe_missing_field(id: str, field: str, steps: list[models.NodeBase]) -> tuple[str, str] | None:
    """What is said of a field that no answer of these steps is declared to have."""
    known: list[str] = []
    for step in steps:
        if not isinstance(step, models.Call | models.Prompt) or is_workflow(step):
            return None
        if step.output_schema is not None:
            fields = fields_of(step.output_schema)
            if fields is None or field in fields:
                return None
            known += fields
    message = f"the condition reads '{field}' of '{id}', and nothing declares that its answer has it"
    if close := near(field, known):
        return message + close, ""
    return message, f"Add '{field}' to output_schema of '{id}'."


def is_workflow(step: models.Call | models.Prompt) -> bool:
    return isinstance(step, models.Call) and step.target.startswith(CHILD)


def fields_of(schema: dict[str, Any]) -> list[str] | None:
    """The fields that a schema declares; None if it says them in another way than by `properties`."""
    fields = schema.get("properties")
    plain = isinstance(fields, dict) and schema.get("additionalProperties") in (None, False)
    others = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if"} & schema.keys()
    return list(fields) if plain and not others and isinstance(fields, dict) else None


def find_unhandled_failures(found: list[Found]) -> Iterator[Wrong]:
    """Steps whose answer is declared to have a `success`, and that nothing handles if it is false."""
    for each in found:
        schema = getattr(each.spec, "output_schema", None)
        if isinstance(schema, dict) and "success" in (fields_of(schema) or ()) and not is_handled(each):
            message = f"an answer with success: false fails '{each.name}', and nothing handles that"
            fix = "Give it an on_error, or give the field another name, such as passed."
            yield (*each.loc, "output_schema"), message, fix


def is_handled(each: Found) -> bool:
    """Whether the failure of a node leads anywhere but to that of the run."""
    for one in (each, *each.above):
        if one.spec.on_error not in (None, "fail"):
            return True
        if isinstance(one.spec, models.Machine):
            n = each.loc[len(one.loc) + 1]
            state = one.spec.states[n] if isinstance(n, int) else None
            if state is not None and (state.on_error is not None or state.after_failure != "fail"):
                return True
    return False
