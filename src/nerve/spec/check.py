"""Checking: everything that can be known to be wrong with a workflow before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from nerve.spec import models
from nerve.spec.checks import fields, flow, names, rules, talks, texts
from nerve.spec.source import Document, Loc, Problem, in_order
from nerve.spec.validate import validate
from nerve.spec.walk import Found, walk

Wrong = tuple[Loc, str, str]
"""The way to what is wrong, what it is, and the fix."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A document, its spec if its shape is right, and all problems, errors first."""

    document: Document
    spec: models.WorkflowSpec | None
    problems: list[Problem]

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


def check(document: Document, known: names.Known | None = None) -> Checked:
    """What is wrong with a workflow; with `known`, also which names in it nobody has."""
    spec, problems = validate(document)
    if spec is not None:
        found = list(walk(spec.body))
        wrong = [*structure(spec, found), *flow.machines(found, document.states)]
        wrong += [*names.unknown(spec, found, known), *names.ungiven(found, known)] if known else ()
        problems = [document.problem(loc, message, fix) for loc, message, fix in wrong]
        problems += texts.wrong_texts(document, spec, found)
        doubtful = [*flow.endless(found, document.states), *fields.find_unhandled_failures(found)]
        doubtful += fields.find_undeclared_fields(document, spec, found)
        doubtful += talks.same_folder(found, document)
        for severity, told in (
            ("warning", doubtful),
            ("note", fields.find_undecided_success(document, spec, found)),
        ):
            problems += [replace(document.problem(*each), severity=severity) for each in told]
    return Checked(document, spec, in_order([*problems, *document.notes]))


def structure(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in CHECKS:
        yield from each(spec, found)


CHECKS: tuple[Callable[[models.WorkflowSpec, list[Found]], Iterator[Wrong]], ...] = (
    rules.inputs,
    rules.ids,
    rules.shapes,
    rules.policies,
    flow.graphs,
    flow.gotos,
    flow.loops,
    talks.conversations,
)
"""The checks of structure, one function each."""
