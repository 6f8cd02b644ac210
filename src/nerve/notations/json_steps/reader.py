"""Reads workflows written in JSON: the dialect of step machines, and the spec itself."""

from __future__ import annotations

from nerve.notations.json_steps.lower import CHILD, Group, workflow
from nerve.notations.json_steps.shape import (
    ADD,
    WORKFLOW,
    Step,
    Told,
    check_ids,
    check_inputs,
    fit,
    shown,
    steps_of,
    unknown_key,
)
from nerve.notations.json_steps.together import together
from nerve.notations.json_text import read_json
from nerve.spec.meant import meant
from nerve.spec.source import Document, Map, Place, Problem, Unreadable

NOTATION = "json"
SHAPE = 'Write {"id": "a-name", "steps": [{…}]}.'


def read(text: str, file: str = "<text>") -> Document:
    """A workflow written in JSON; raises `Unreadable` with every problem and its place."""
    source = read_json(text, file)
    if not isinstance(source, Map):
        place = getattr(source, "place", None)
        message = f"a workflow is an object, not {shown(source)}"
        raise Unreadable([Problem(file, place or Place(), message, SHAPE)])
    if "body" in source and "steps" in source:
        message, at = "a workflow has either 'steps' or a 'body'", source.keys_at.get("body")
        raise Unreadable([Problem(file, at or Place(), message, "Remove one of them.")])
    if "body" in source:
        source.pop("$schema", None)
        return Document(source, NOTATION, file, text)
    told = Told(file)
    if "steps" not in source:
        raise Unreadable([no_workflow(source, told)])
    return Document(dialect(source, told), NOTATION, file, text, told.notes, states="step")


def no_workflow(source: Map, told: Told) -> Problem:
    """What is said of an object with neither steps nor a body: likely one of them is misspelt."""
    forms = ("steps", "body")
    close = next((key for key in source if key not in WORKFLOW and meant(key, forms)), None)
    if close is not None:
        unknown_key(told, source, close, forms, "a workflow", "")
    else:
        told.error(source.place, "this is no workflow: it has neither 'steps' nor a 'body'", SHAPE)
    return told.problems[0]


def check_agent(told: Told, step: Step) -> None:
    """What only agents have, and what only workflows have that are called as one."""
    name = step.get("agent") or ""
    if name == CHILD:
        told.error(step.at("agent"), f"'{CHILD}' names no workflow", f"Write {CHILD}<id>.")
    if "params" in step.source and not name.startswith(CHILD):
        message = f"'params' of step '{step.id}' are the inputs of a workflow, and '{name}' is an agent"
        told.error(step.at("params"), message, f'Name steps with "input", or write {CHILD}<id>.')
    if "output_schema" in step.source and name.startswith(CHILD):
        message = f"'output_schema' of step '{step.id}' is for the answer of an agent, not of a workflow"
        told.error(step.at("output_schema"), message, "Put it in the steps of that workflow.")


def dialect(source: Map, told: Told) -> Map:
    """The spec of a workflow written as steps."""
    source = fit(told, source, WORKFLOW, "a workflow")
    if "id" not in source and "id" not in source.keys_at:
        told.error(source.place, "the workflow has no 'id'", f"Add {ADD['id']}.")
    steps = steps_of(told, source, "the workflow")
    known = check_ids(told, steps)
    check_inputs(told, known)
    for step in known.values():
        check_agent(told, step)
    if told.problems:
        raise Unreadable(sorted(told.problems))
    units: list[Step | Group] = list(steps)
    if source.get("parallel"):
        units = together(steps, known, told, source.values_at.get("parallel"))
    return workflow(source, units, told)
