"""The progress tree of a run."""

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
    assert notes_after(journal) == {"/plan": '⚒ Bash {"command": "make test"}'}


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
