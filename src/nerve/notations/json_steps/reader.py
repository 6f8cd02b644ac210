"""Read workflows in JSON: the step machine format, and the spec itself."""

from __future__ import annotations

from nerve.notations.json_steps.lowering import WORKFLOW_PREFIX, StepGroup, lower_workflow
from nerve.notations.json_steps.parallel_grouping import group_parallel
from nerve.notations.json_steps.step_schema import (
    KEY_EXAMPLES,
    WORKFLOW_SCHEMA,
    StepDiagnostics,
    StepSource,
    check_source_step_ids,
    check_step_inputs,
    describe_json_value,
    drop_invalid_keys,
    parse_steps,
    report_unknown_key,
)
from nerve.spec.key_suggestions import suggest_key
from nerve.text.json_reader import parse_located_json
from nerve.text.source import Document, InvalidDefinition, LocatedMap, Position, Problem

NOTATION = "json"
WORKFLOW_SHAPE_FIX = 'Write {"id": "a-name", "steps": [{…}]}.'


def read_document(text: str, file: str = "<text>") -> Document:
    """Parse a workflow in JSON; raises `InvalidDefinition` with every problem and its position."""
    source = parse_located_json(text, file)
    if not isinstance(source, LocatedMap):
        position = getattr(source, "position", None)
        message = f"A workflow must be an object, got {describe_json_value(source)}"
        raise InvalidDefinition([Problem(file, position or Position(), message, WORKFLOW_SHAPE_FIX)])
    if "body" in source and "steps" in source:
        message, at = (
            "A workflow must have either 'steps' or 'body', not both",
            source.key_positions.get("body"),
        )
        raise InvalidDefinition([Problem(file, at or Position(), message, "Remove one of them.")])
    if "body" in source:
        source.pop("$schema", None)
        return Document(source, NOTATION, file, text)
    diagnostics = StepDiagnostics(file)
    if "steps" not in source:
        raise InvalidDefinition([no_workflow_problem(source, diagnostics)])
    return Document(
        lower_dialect(source, diagnostics), NOTATION, file, text, diagnostics.notes, state_word="step"
    )


def no_workflow_problem(source: LocatedMap, diagnostics: StepDiagnostics) -> Problem:
    """Return the problem of an object with neither steps nor a body; a key may be misspelled."""
    forms = ("steps", "body")
    close = next((key for key in source if key not in WORKFLOW_SCHEMA and suggest_key(key, forms)), None)
    if close is not None:
        report_unknown_key(diagnostics, source, close, forms, "a workflow", "")
    else:
        diagnostics.add_problem(source.position, "A workflow must have 'steps' or 'body'", WORKFLOW_SHAPE_FIX)
    return diagnostics.problems[0]


def check_agent_step(diagnostics: StepDiagnostics, step: StepSource) -> None:
    """Check the keys that only agents or only called workflows may have."""
    name = step.get("agent") or ""
    if name == WORKFLOW_PREFIX:
        diagnostics.add_problem(
            step.position_of("agent"),
            f"'{WORKFLOW_PREFIX}' does not name a workflow",
            f"Write {WORKFLOW_PREFIX}<id>.",
        )
    if "params" in step.source and not name.startswith(WORKFLOW_PREFIX):
        message = f"'params' of step '{step.id}' are the inputs of a workflow, and '{name}' is an agent"
        diagnostics.add_problem(
            step.position_of("params"), message, f'Name steps with "input", or write {WORKFLOW_PREFIX}<id>.'
        )
    if "output_schema" in step.source and name.startswith(WORKFLOW_PREFIX):
        message = f"'output_schema' of step '{step.id}' is for the answer of an agent, not of a workflow"
        diagnostics.add_problem(
            step.position_of("output_schema"), message, "Put it in the steps of that workflow."
        )


def lower_dialect(source: LocatedMap, diagnostics: StepDiagnostics) -> LocatedMap:
    """Return the spec of a workflow in the step machine format."""
    source = drop_invalid_keys(diagnostics, source, WORKFLOW_SCHEMA, "a workflow")
    if "id" not in source and "id" not in source.key_positions:
        diagnostics.add_problem(
            source.position, "'id' of the workflow is missing", f"Add {KEY_EXAMPLES['id']}."
        )
    steps = parse_steps(diagnostics, source, "the workflow")
    known = check_source_step_ids(diagnostics, steps)
    check_step_inputs(diagnostics, known)
    for step in known.values():
        check_agent_step(diagnostics, step)
    if diagnostics.problems:
        raise InvalidDefinition(sorted(diagnostics.problems))
    units: list[StepSource | StepGroup] = list(steps)
    if source.get("parallel"):
        units = group_parallel(steps, known, diagnostics, source.value_positions.get("parallel"))
    return lower_workflow(source, units, diagnostics)
