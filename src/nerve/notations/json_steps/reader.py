"""Reads workflows written in JSON: the dialect of step machines, and the spec itself."""

from __future__ import annotations

from typing import Any

from nerve.notations.json_steps.lower import CHILD, Group, workflow
from nerve.notations.json_steps.shape import (
    WORKFLOW,
    Step,
    Told,
    check_ids,
    check_inputs,
    fit,
    shown,
    steps_of,
)
from nerve.notations.json_steps.together import together
from nerve.notations.json_text import read_json
from nerve.spec.source import Document, Map, Problem, Unreadable

NOTATION = "json"


def read(text: str, file: str = "<text>") -> Document:
    """A workflow written in JSON; raises `Unreadable` with every problem and its place."""
    source = read_json(text, file)
    if not isinstance(source, Map):
        place = getattr(source, "place", None)
        raise Unreadable([problem(file, place, f"a workflow is an object, not {shown(source)}")])
    if "body" in source:
        source.pop("$schema", None)
        return Document(source, NOTATION, file, text)
    if "steps" not in source:
        raise Unreadable(
            [problem(file, source.place, "this is no workflow: it has neither 'steps' nor a 'body'")]
        )
    told = Told(file)
    return Document(dialect(source, told), NOTATION, file, text, told.notes, states="step")


def problem(file: str, place: Any, message: str) -> Problem:
    told = Told(file)
    told.error(place, message)
    return told.problems[0]


def dialect(source: Map, told: Told) -> Map:
    """The spec of a workflow written as steps."""
    source = fit(told, source, WORKFLOW, "a workflow")
    if "id" not in source and "id" not in source.keys_at:
        told.error(source.place, "the workflow has no 'id'")
    steps = steps_of(told, source, "the workflow")
    known = check_ids(told, steps)
    check_inputs(told, known)
    for step in known.values():
        if step.get("agent") == CHILD:
            told.error(step.at("agent"), f"'{CHILD}' names no workflow", f"Write {CHILD}<id>.")
    if told.problems:
        raise Unreadable(sorted(told.problems))
    units: list[Step | Group] = list(steps)
    if source.get("parallel"):
        units = together(steps, known, told, source.values_at.get("parallel"))
    return workflow(source, units, told)
