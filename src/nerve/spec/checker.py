"""Check a workflow for problems before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from nerve.lazy_dataclass import dataclass
from nerve.spec import models
from nerve.spec.checks import answer_fields, conversations, expressions, flow, node_rules
from nerve.spec.checks.node_rules import LocatedProblem
from nerve.spec.validation import validate_document
from nerve.spec.walk import SpecNode, walk_spec
from nerve.text.source import Document, Problem, sort_problems


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """A document, its spec if it is valid, and all problems, errors first."""

    document: Document
    spec: models.WorkflowSpec | None
    problems: list[Problem]

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


def check_document(document: Document) -> CheckedDocument:
    """Return the problems of a workflow, except for names that only the project knows."""
    spec, problems = validate_document(document)
    if spec is not None:
        spec_nodes = list(walk_spec(spec.body))
        errors = [problem for check in STRUCTURE_CHECKS for problem in check(spec, spec_nodes)]
        errors += flow.check_machines(spec_nodes, document.state_word)
        problems = [document.problem(loc, message, fix) for loc, message, fix in errors]
        problems += expressions.check_embedded_texts(document, spec, spec_nodes)
        undeclared_fields, undecided_success = answer_fields.check_read_fields(document, spec, spec_nodes)
        warnings = [
            *flow.find_endless_machines(spec_nodes, document.state_word),
            *answer_fields.find_unhandled_failures(spec_nodes),
            *undeclared_fields,
        ]
        for severity, located_problems in (("warning", warnings), ("note", undecided_success)):
            problems += [
                replace(document.problem(*located_problem), severity=severity)
                for located_problem in located_problems
            ]
    return CheckedDocument(document, spec, sort_problems([*problems, *document.warnings]))


STRUCTURE_CHECKS: tuple[Callable[[models.WorkflowSpec, list[SpecNode]], Iterator[LocatedProblem]], ...] = (
    node_rules.check_declared_inputs,
    node_rules.check_unique_ids,
    node_rules.check_node_shapes,
    node_rules.check_policies,
    flow.check_graphs,
    flow.check_gotos,
    flow.check_loops,
    conversations.check_conversations,
)
"""The structural checks, one function each."""
