"""The settings of gates that several people decide are the same in every notation."""

import json
from typing import Any

import pytest

from nerve.notations import NOTATIONS
from nerve.spec.checker import check_document
from nerve.spec.validation import validate_document
from nerve.spec.walk import walk_spec

POLICY = {
    "approvers": ["ann"],
    "quorum": "2 of [lead, security]",
    "veto": ["security"],
    "author": "{{ input }}",
    "remind": [60.0],
    "escalate": [{"after": 120.0, "to": ["admin"]}],
}
YAML = """
name: ship
description: Ship it
nodes:
  - id: decide
    approval:
      prompt: Ship it?
      approvers: [ann]
      quorum: 2 of [lead, security]
      veto: [security]
      author: "{{ input }}"
      remind: [60]
      escalate: [{after: 120, to: [admin]}]
"""
LISP = """
(workflow "ship"
  (state start
    (action
      (gate "Ship it?" :choices (approve reject) :approvers (ann) :quorum "2 of [lead, security]"
            :veto (security) :author (input) :remind [60] :escalate [{:after 120 :to ["admin"]}]))))
"""
STEPS = json.dumps(
    {"id": "ship", "steps": [{"id": "decide", "type": "approval", "message": "Ship it?", **POLICY}]}
)


def gate_in(notation: str, text: str) -> dict[str, Any]:
    """Return the settings of the gate of a workflow."""
    spec, problems = validate_document(NOTATIONS[notation].read(text))
    assert spec is not None, problems
    [gate] = [step.spec for step in walk_spec(spec.body) if step.kind == "gate"]
    return gate.model_dump(include=set(POLICY))


@pytest.mark.parametrize(("notation", "text"), [("yaml", YAML), ("lisp", LISP), ("json", STEPS)])
def test_a_notation_has_the_settings_of_a_gate(notation: str, text: str) -> None:
    assert gate_in(notation, text) == POLICY


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("quorum: 2 of 3", "quorum of a gate must be a number or like '2 of [lead, security]', got '2 of 3'"),
        ("approvers: [Lead]", "approvers of a gate must name people and roles in lower case, got 'Lead'"),
        ("claim: true", "claim of a gate needs approvers"),
    ],
)
def test_wrong_settings_are_problems_of_the_file(wrong: str, message: str) -> None:
    text = f"name: ship\ndescription: Ship it\nnodes:\n  - id: decide\n    approval:\n      {wrong}\n"
    problems = check_document(NOTATIONS["yaml"].read(text)).problems
    assert any(message in problem.message for problem in problems), problems
