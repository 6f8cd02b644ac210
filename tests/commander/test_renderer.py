"""The renderer of runs."""

import io

import pytest
from rich.console import Console

from nerve.commander import WorkflowRenderer


def drawn(terminal: bool = True) -> tuple[WorkflowRenderer, io.StringIO]:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=60, color_system=None, _environ={"TERM": "xterm"}
    )
    return WorkflowRenderer(console), file


def panel_of(renderer: WorkflowRenderer) -> str:
    """Return the current text of the panel."""
    console = Console(file=io.StringIO(), width=60, color_system=None)
    console.print(renderer._render_panel())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.requirement("S1-09")
@pytest.mark.requirement("S1-44")
def test_the_tree_shows_the_state_of_each_step():
    renderer, _ = drawn()
    renderer.show_started({"workflow_id": "research_agent", "steps": ["init", "research_loop", "synthesize"]})
    renderer.update_step("init", "completed", duration=100)
    renderer.update_step("research_loop", "running", note="evaluating...")
    renderer.show_iteration("research_loop", 2, 5)
    shown = panel_of(renderer)
    renderer.stop()
    assert "Workflow Progress" in shown
    assert "🔄 research_agent" in shown
    assert "✓ init (0.1s)" in shown
    assert "● research_loop [2/5]" in shown
    assert "└── evaluating..." in shown
    assert "○ synthesize" in shown


@pytest.mark.requirement("S1-10")
@pytest.mark.requirement("S1-44")
def test_a_gate_stops_the_live_tree_until_it_is_closed():
    renderer, file = drawn()
    renderer.show_started({"workflow_id": "ship", "steps": ["build"]})
    assert renderer.live is not None
    assert renderer.live.refresh_per_second == 4
    renderer.show_gate_prompt({"prompt": "Ship it?", "options": ["yes", "not today"]})
    assert renderer.live is None
    assert "⏸ Waiting for Input" in file.getvalue()
    assert "Options:" in file.getvalue()
    assert "• not today" in file.getvalue()
    renderer.hide_gate_prompt()
    assert renderer.live is not None
    renderer.stop()


@pytest.mark.requirement("S0-65")
def test_choices_are_numbered_from_one():
    renderer, file = drawn()
    renderer.show_gate_prompt({"prompt": "Ship it?", "choices": ["yes", "no"]})
    assert "1 yes" in file.getvalue()
    assert "2 no" in file.getvalue()


@pytest.mark.requirement("S1-44")
def test_the_end_shows_the_duration_or_the_error():
    renderer, file = drawn()
    renderer.show_started({"workflow_id": "ship"})
    renderer.show_completed({"duration_s": 12.34})
    renderer.show_failed("no [bold]luck[/]")
    renderer.show_cancelled("rejected")
    output = file.getvalue()
    assert "✓ Completed in 12.3s" in output
    assert "✗ no [bold]luck[/]" in output
    assert "✗ rejected" in output
    assert renderer.live is None


@pytest.mark.requirement("S1-44")
def test_an_iteration_is_printed_on_one_line():
    renderer, file = drawn(terminal=False)
    renderer.show_iteration("loop", 2, 5)
    renderer.show_iteration("loop", 3)
    assert file.getvalue() == "  ↻ loop iteration 2/5\n  ↻ loop iteration 3\n"


def test_in_a_pipe_there_are_lines_and_no_escape_sequences():
    renderer, file = drawn(terminal=False)
    renderer.show_started({"workflow_id": "ship", "steps": ["build"]})
    renderer.update_step("build", "running")
    renderer.update_step("build", "failed", duration=1500, error="exit code 1\nmore")
    renderer.show_failed("build failed")
    assert file.getvalue().splitlines() == [
        "[workflow] ship started",
        "[build] ● build",
        "[build] ✗ build (1.5s) exit code 1",
        "✗ build failed",
    ]


def test_untrusted_text_cannot_move_the_cursor():
    renderer, file = drawn(terminal=False)
    renderer.show_error("\x1b[2J[red]gone[/]")
    renderer.show_result("\x1b[2J**done**")
    assert "\x1b" not in file.getvalue()
    assert "[red]gone[/]" in file.getvalue()
    assert "done" in file.getvalue()
