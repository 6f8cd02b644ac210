"""What the tests of the Lisp notation share."""

from typing import Any

import pytest

from nerve.notations.lisp import read_document
from nerve.spec.checker import check_document
from nerve.text.source import Document, InvalidDefinition

ROLES = '(roles (planner :agent-kind "claude-code" :handle-ref "agent-a") (worker))'
SEND = '(send-prompt :agent planner :template "Go" :tag go)'


def in_workflow(*forms: str) -> str:
    return f"(workflow w {ROLES} {' '.join(forms)})"


def checked(text: str) -> Document:
    """A document in which nothing is wrong."""
    document = read_document(text, "f.lisp")
    assert [str(problem) for problem in check_document(document).errors] == []
    return document


def states(*forms: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = checked(in_workflow(*forms)).data["body"]["states"]
    return found


def steps(body: str, *before: str) -> list[dict[str, Any]]:
    """The steps of a state with this body; there are other states to go to."""
    state, *_ = states(*before, f"(state s {body})", "(state other)", "(state end (terminal))")
    made = state["body"]
    found: list[dict[str, Any]] = made["steps"] if made["kind"] == "sequence" and len(made) == 2 else [made]
    return found


def refused(text: str) -> str:
    with pytest.raises(InvalidDefinition) as caught:
        read_document(text, "f.lisp")
    return str(caught.value)


def refused_body(body: str, *before: str) -> str:
    return refused(in_workflow(*before, f"(state s {body})", "(state other)"))
