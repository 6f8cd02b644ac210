"""The rendering of a run with rich."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from commander.core.events import Journal
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.progress_tree import ProgressTree
from nerve.ui.tree_panel import end_of_text, render_tree_grid

WORDS = " ".join(f"word{number}" for number in range(30))


def lines_after(journal: Journal, width: int = 60) -> list[str]:
    tree = ProgressTree(shows_progress=True)
    for event in journal.events:
        tree.apply_event("", to_workflow_event(event))
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(render_tree_grid(tree, datetime.now(UTC)))
    return capture.get().splitlines()


def test_a_long_line_that_an_agent_is_writing_is_shown_with_its_end() -> None:
    journal = Journal()
    journal.add("node_started", "/plan", node_id="plan")
    journal.add("output_chunk", "/plan", stream="partial", text=WORDS)
    [line] = (line for line in lines_after(journal) if "plan" in line)
    assert "word0" not in line
    assert " …" in line
    assert "word28 word29" in line
    assert len(line) == 60


def test_a_long_result_is_shown_with_its_beginning() -> None:
    journal = Journal()
    journal.add("node_started", "/plan", node_id="plan")
    result = {"success": True, "output": WORDS, "attributes": {}}
    journal.add("node_completed", "/plan", node_id="plan", success=True, result=result, duration_ms=1)
    [line] = (line for line in lines_after(journal) if "plan" in line)
    assert "word0 word1" in line
    assert "word29" not in line


@pytest.mark.parametrize(
    ("text", "width", "end"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 4, "…def"),
        ("日本語です", 6, "…です"),
        ("abcdef", 1, "…"),
        ("abcdef", -3, "…"),
    ],
)
def test_the_end_of_a_text_fits_into_its_cells(text: str, width: int, end: str) -> None:
    assert end_of_text(text, width) == end
