"""The progress tree of a run."""

import re
from datetime import UTC, datetime, timedelta

from commander.core.events import Journal
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.progress_tree import ProgressTree


def notes_after(journal: Journal) -> dict[str, str]:
    tree = ProgressTree(shows_progress=True)
    for event in journal.events:
        tree.apply_event("", to_workflow_event(event))
    return tree.root.notes


def working_agent() -> Journal:
    journal = Journal()
    journal.add("node_started", "/plan", node_id="plan")
    return journal


def test_a_running_agent_is_shown_with_its_last_tool_call() -> None:
    journal = working_agent()
    journal.add("tool_call", "/plan", name="Bash", input={"command": "make test"}, id="1")
    journal.add("tool_call", "/plan", id="1", status="completed", text="ok")
    assert notes_after(journal) == {"/plan": "⚒ Bash make test"}


def test_a_running_agent_is_shown_with_the_last_line_of_its_streamed_text() -> None:
    journal = working_agent()
    for piece in ("I read the\n", "tests ", "first."):
        journal.add("output_chunk", "/plan", stream="partial", text=piece)
    assert notes_after(journal) == {"/plan": "tests first."}
    journal.add("output_chunk", "/plan", stream="assistant", text="I read the\ntests first.")
    journal.add("output_chunk", "/plan", stream="partial", text="Next ")
    assert notes_after(journal) == {"/plan": "Next"}


def test_a_finished_step_is_shown_with_its_result() -> None:
    journal = working_agent()
    journal.add("output_chunk", "/plan", stream="partial", text="thinking")
    result = {"success": True, "output": "The plan", "attributes": {}}
    journal.add("node_completed", "/plan", node_id="plan", success=True, result=result, duration_ms=1)
    journal.add("output_chunk", "/plan", stream="stdout", text="late")
    assert notes_after(journal) == {"/plan": "The plan"}


def rows_after(journal: Journal, reused_before: datetime | None = None) -> list[str]:
    tree = ProgressTree(reused_before=reused_before)
    for event in journal.events:
        tree.apply_event("", to_workflow_event(event))
    return [f"{row.guide}{row.label} {row.note} {row.time}".rstrip() for row in tree.rows(datetime.now(UTC))]


def end_step(journal: Journal, path: str, output: str) -> None:
    result = {"success": True, "output": output, "attributes": {}}
    journal.add("node_started", path, node_id=path[1:])
    journal.add("node_completed", path, node_id=path[1:], success=True, result=result, duration_ms=1)


def test_steps_are_grouped_by_the_rounds_that_the_workflow_announces() -> None:
    journal = Journal()
    end_step(journal, "/dev", "done")
    journal.add("outer_round", "", round=1, max=3)
    end_step(journal, "/coach", "bad")
    journal.add("outer_round", "", round=2, max=3)
    end_step(journal, "/coach[2]", "good")
    assert [re.sub(r" \(.*", "", row) for row in rows_after(journal)] == [
        "├─ ✓ dev done",
        "├─ ↻ round 1/3",
        "│  └─ ✓ coach bad",
        "└─ ↻ round 2/3",
        "   └─ ✓ coach good",
    ]


def test_a_gate_of_the_workflow_function_is_a_row_with_its_answer() -> None:
    journal = Journal()
    journal.add("gate_waiting", "/gate", gate_id="g1", prompt="Merge?", choices=["yes", "no"])
    assert rows_after(journal) == ["└─ ⏸ gate Merge?"]
    journal.add("gate_answered", "/gate", gate_id="g1", answer="yes", by="api")
    assert rows_after(journal) == ["└─ ✓ gate yes (Merge?)"]


def test_a_gate_that_is_open_when_the_run_ends_is_cancelled() -> None:
    journal = Journal()
    journal.add("gate_waiting", "/gate", gate_id="g1", prompt="Merge?", choices=None)
    journal.add("workflow_cancelled", "", reason="no")
    assert rows_after(journal) == ["└─ ✗ gate Merge?"]


def test_steps_that_ended_before_a_recovery_are_marked_as_reused() -> None:
    journal = Journal()
    end_step(journal, "/dev", "done")
    assert rows_after(journal, datetime.now(UTC) + timedelta(days=36500)) == ["└─ ✓ dev done reused"]
