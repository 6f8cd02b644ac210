"""Formatting of failures for one line and for details."""

import pytest

from nerve.core.events import WorkflowEvent
from nerve.core.run_view import NodeView, RunView
from nerve.ui.event_lines import LogLines, format_event
from nerve.ui.failure_text import failed_run_lines, failure_line, failure_text, traceback_lines

TRACE = 'Traceback (most recent call last):\n  File "flow.py", line 12, in charge\nLookupError: no card'
RAISED = {
    "node_id": "charge",
    "success": False,
    "error": "no card\nof ada",
    "error_type": "LookupError",
    "location": "flow.py:12 in charge",
    "traceback": TRACE,
}


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (RAISED, "LookupError: no card (flow.py:12 in charge)"),
        ({"error": "exit code 2", "error_type": "ExitCode"}, "exit code 2"),
        (RAISED | {"error": "LookupError"}, "LookupError (flow.py:12 in charge)"),
        (RAISED | {"error": None}, "LookupError (flow.py:12 in charge)"),
        ({}, ""),
    ],
)
def test_a_failure_is_one_line_with_its_place(failure: dict[str, object], line: str) -> None:
    assert failure_line(failure) == line


def test_the_text_of_a_failure_keeps_all_lines() -> None:
    assert failure_text("a\nb", "E", "f.py:1 in g") == "E: a\nb (f.py:1 in g)"
    assert failure_text("a\nb", "E", None) == "a\nb"


def test_a_line_of_a_failed_step_names_the_place_and_a_log_has_the_traceback() -> None:
    event = WorkflowEvent("r", "w", "node_error", {**RAISED, "duration_ms": 100}, path="/charge")
    line = "[charge] ✗ LookupError: no card (flow.py:12 in charge) (0.1s)"
    assert format_event(event) == line
    (logged,) = LogLines().apply_event(event)
    assert logged.splitlines() == [line, *(f"  {each}" for each in TRACE.splitlines())]


def test_a_retry_says_why() -> None:
    event = WorkflowEvent("r", "w", "node_retrying", {**RAISED, "attempt": 1}, path="/charge")
    assert format_event(event) == "[charge] ↻ retrying after: LookupError: no card (flow.py:12 in charge)"
    recovered = WorkflowEvent("r", "w", "node_retrying", {"attempt": 1, "recovered": True}, path="/charge")
    assert format_event(recovered) == "[charge] ↻ retrying"


def test_a_traceback_cannot_control_the_terminal() -> None:
    assert traceback_lines("\x1b[2J\nx") == ["  \\x1b[2J", "  x"]
    assert traceback_lines(None) == []


def test_a_failed_run_shows_its_steps_and_its_own_code() -> None:
    nodes = {
        f"/{name}": NodeView(f"/{name}", name, state, traceback=name)
        for name, state in {"a": "failed", "b": "completed", "c": "failed"}.items()
    }
    view = RunView(state="failed", nodes=nodes, traceback="own")
    assert list(failed_run_lines(view)) == ["  step /a:", "  a", "  step /c:", "  c", "  own"]
    view.state = "completed"
    assert list(failed_run_lines(view)) == []
