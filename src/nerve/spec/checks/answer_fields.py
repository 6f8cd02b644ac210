"""Checks of answer fields: fields that conditions read, and declared `success` fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nerve.expr import ExprError, compile
from nerve.spec import models
from nerve.spec.checks.expressions import is_step_condition
from nerve.spec.checks.names import CHILD_WORKFLOW_PREFIX
from nerve.spec.checks.node_rules import LocatedProblem, suggest_known_name
from nerve.spec.walk import SpecNode, embedded_texts, hyphenated_names
from nerve.text.source import Document, Loc

STEP_FIELDS = frozenset({"success", "output", "error", "attributes", "status", "length"})
AGENT_FIELDS = frozenset(
    {"provider", "thread", "model", "tools", "usage", "totals", "instead_of", "dropped_characters"}
    | {"skipped", "error_type", "timed_out"}
)
"""Attributes of an agent step that `context.<id>` shows in addition to its data."""
CONDITION_KEYS = frozenset({"when", "condition", "until"})


def check_read_fields(
    document: Document, spec: models.WorkflowSpec, spec_nodes: list[SpecNode]
) -> tuple[list[LocatedProblem], list[LocatedProblem]]:
    """Return the fields of an agent's answer that a condition reads and no output schema declares.

    The second list has the conditions on the `success` of an agent whose schema does not declare it.
    """
    undeclared: list[LocatedProblem] = []
    undecided: list[LocatedProblem] = []
    steps_by_id: dict[str, list[models.NodeBase]] = {}
    for spec_node in spec_nodes:
        if spec_node.spec.id:
            steps_by_id.setdefault(spec_node.spec.id, []).append(spec_node.spec)
    for loc, paths in condition_paths(document, spec, spec_nodes):
        for id, field in sorted(answer_fields_read(paths)):
            if id in steps_by_id and (problem := describe_missing_field(id, field, steps_by_id[id])):
                undeclared.append((loc, *problem))
        read_ids = {
            path[1] for path in paths if path[0] in ("context", "steps") and path[2:3] == ("success",)
        }
        for id in sorted(read_ids & steps_by_id.keys()):
            if describe_missing_field(id, "success", steps_by_id[id]):
                message = f"An answer of '{id}' counts as success unless it is JSON with success: false"
                fix = f"Add 'success' to output_schema of '{id}' if the answer should decide."
                undecided.append((loc, message, fix))
    return undeclared, undecided


def condition_paths(
    document: Document, spec: models.WorkflowSpec, spec_nodes: list[SpecNode]
) -> Iterator[tuple[Loc, frozenset[tuple[str, ...]]]]:
    """Yield the location of each condition and the name paths it reads."""
    hyphenated = hyphenated_names(spec, spec_nodes)
    for spec_node in spec_nodes:
        for text in embedded_texts(spec_node.spec):
            # `expect` checks its own step; the other conditions only decide where to go.
            is_routing = text.kind == "expression" and text.loc[-1] in CONDITION_KEYS
            if (is_routing and text.loc[0] != "expect") or (
                text.loc == ("expression",) and is_step_condition(document, spec_node)
            ):
                try:
                    yield spec_node.loc + text.loc, compile(text.source, hyphens=hyphenated).paths
                except ExprError:
                    continue


def answer_fields_read(paths: frozenset[tuple[str, ...]]) -> set[tuple[str, str]]:
    """Return the (step id, answer field) pairs that a condition reads."""
    step_fields = set()
    for path in paths:
        match path:
            case ("context", id, field, *_) if field not in STEP_FIELDS | AGENT_FIELDS:
                step_fields.add((id, field))
            case ("results", id, field, *_) | ("steps", id, "output", field, *_):
                step_fields.add((id, field))
    return {(id, field) for id, field in step_fields if field not in ("length", "error")}


def describe_missing_field(id: str, field: str, steps: list[models.NodeBase]) -> tuple[str, str] | None:
    """Return the message and fix for a field that none of these steps declares, or None."""
    known: list[str] = []
    for step in steps:
        if not isinstance(step, models.CallSpec | models.PromptSpec) or (
            isinstance(step, models.CallSpec) and step.target.startswith(CHILD_WORKFLOW_PREFIX)
        ):
            return None
        if step.output_schema is not None:
            fields = declared_fields(step.output_schema)
            if fields is None or field in fields:
                return None
            known += fields
    message = f"The condition reads '{field}' of '{id}', but no output_schema declares it"
    if close := suggest_known_name(field, known):
        return message + close, ""
    return message, f"Add '{field}' to output_schema of '{id}'."


def declared_fields(schema: dict[str, Any]) -> list[str] | None:
    """Return the fields that a schema declares; None if `properties` alone does not define them."""
    fields = schema.get("properties")
    plain = isinstance(fields, dict) and schema.get("additionalProperties") in (None, False)
    others = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if"} & schema.keys()
    return list(fields) if plain and not others and isinstance(fields, dict) else None


def find_unhandled_failures(spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    """Yield steps that declare a `success` field without a handler for the case that it is false."""
    for spec_node in spec_nodes:
        schema = getattr(spec_node.spec, "output_schema", None)
        if (
            isinstance(schema, dict)
            and "success" in (declared_fields(schema) or ())
            and not is_failure_handled(spec_node)
        ):
            message = (
                f"An answer with success: false fails '{spec_node.name}', and nothing handles the failure"
            )
            fix = "Add on_error, or rename the field, for example to passed."
            yield (*spec_node.loc, "output_schema"), message, fix


def is_failure_handled(spec_node: SpecNode) -> bool:
    """Whether something handles the failure of a node before it fails the run."""
    for enclosing in (spec_node, *spec_node.ancestors):
        if enclosing.spec.on_error not in (None, "fail"):
            return True
        if isinstance(enclosing.spec, models.MachineSpec):
            n = spec_node.loc[len(enclosing.loc) + 1]
            state = enclosing.spec.states[n] if isinstance(n, int) else None
            if state is not None and (state.on_error is not None or state.after_failure != "fail"):
                return True
    return False
