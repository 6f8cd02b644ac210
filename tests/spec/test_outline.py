"""Outlines of workflows, including invalid ones."""

from nerve.spec.models import WorkflowSpec
from nerve.spec.outline import format_mermaid


def drawn(body: dict[str, object]) -> list[str]:
    return format_mermaid(WorkflowSpec.model_validate({"name": "w", "body": body})).splitlines()


def test_a_step_with_an_unknown_dependency_is_drawn_without_that_edge() -> None:
    lines = drawn({"kind": "graph", "steps": [{"kind": "goto", "id": "a", "depends_on": ["b"]}]})
    assert lines == ["flowchart TD", '    n0["a<br/><small>goto</small>"]']


def test_a_state_may_be_called_end() -> None:
    lines = drawn({"kind": "machine", "states": [{"name": "end"}]})
    assert lines[1:] == ['    n0["end<br/><small>state</small>"]', "    n1(((end)))", "    n0 --> n1"]
