"""The plain mode in real terminals and in pipes."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from commander.e2e.plain_terminal import APP, Terminal

COLOUR = re.compile(r"\x1b\[[\d;]*(?<![\d])(?:3[0-7]|4[0-7]|9[0-7]|38|48)(?:;[\d;]*)?m")
REVIEW = """name: review
description: Reviews a file
inputs:
  strict: {type: boolean, default: false}
body:
  kind: sequence
  steps:
    - {kind: bash, id: build, command: "echo one; echo two; echo built"}
    - {kind: call, id: look, target: reviewer, input: "look at {{ input }}"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".nerve" / "workflows").mkdir(parents=True)
    (tmp_path / ".nerve" / "workflows" / "review.yaml").write_text(REVIEW)
    return tmp_path


def opened(project: Path, **options: str) -> Terminal:
    terminal = Terminal(project, **options)
    terminal.until("6 workflows", "no active runs")
    return terminal


def piped(project: Path, *lines: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(APP)],
        input="".join(f"{line}\n" for line in lines),
        cwd=project,
        env={**os.environ, **env},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


@pytest.mark.requirement("S0-05")
@pytest.mark.requirement("S1-08")
def test_a_typed_workflow_is_started_and_its_progress_printed(project):
    with opened(project) as terminal:
        terminal.enter("%review --strict it")
        shown = terminal.until("review completed", "no active runs")
        lines = [line.strip() for line in shown.splitlines()]
        expected = [
            "[workflow] review started",
            "[build] │ one",
            "[build] ✓",
            "[look] ⚙ Read",
            "-one",
            "+two",
        ]
        places = [next(n for n, line in enumerate(lines) if line.startswith(start)) for start in expected]
        assert places == sorted(places)
        assert "• clear" in lines
        assert lines.count("Review") == 1
        assert COLOUR.search(terminal.raw)

        terminal.enter("%broken")
        terminal.until("broken failed", "no luck")
        terminal.type("".join(f"%hello number {n}\r" for n in range(10)))
        terminal.until(*(f"Hello number {n}" for n in range(10)))
        terminal.enter("%review --stric it")
        terminal.until("'review' has no option 'stric'. Did you mean 'strict'?")


@pytest.mark.requirement("S0-65")
@pytest.mark.requirement("S1-10")
@pytest.mark.requirement("D1-1")
@pytest.mark.requirement("D1-4")
def test_a_gate_is_answered_by_number_or_text_and_asks_again_after_an_error(project):
    with opened(project) as terminal:
        terminal.enter("%paint")
        terminal.until("⏸ Waiting for Input", "Which colour?", "1 red", "2 blue", "1 waiting: /gates")
        terminal.until("gate (red · blue) ▸")
        terminal.enter("green")
        terminal.until("Invalid choice 'green'", "gate (red · blue) ▸", "1 waiting:")
        terminal.enter("/status")
        terminal.until("❯ /status", "gate (red · blue) ▸")
        terminal.press("esc")
        terminal.until("❯ ", gone="▸")
        terminal.press("enter")
        terminal.until("gate (red · blue) ▸")
        terminal.enter("2")
        terminal.until("[gate] answered: blue", "It is blue.", gone="1 waiting:")

        terminal.enter("%note")
        terminal.until("What is to be noted?")
        terminal.enter("/answer 1 all is well")
        terminal.until("Noted: all is well", gone="1 waiting:")

        terminal.enter("%hello ::last")
        terminal.until("Hello Noted: all is well")


def test_common_editing_keys_work(project):
    with opened(project) as terminal:
        terminal.type("?")
        terminal.until("these keys")

        terminal.type("%hel")
        terminal.until("Greets.")
        terminal.press("tab")
        terminal.until("❯ %hello")
        terminal.type(" first")
        terminal.press("newline")
        terminal.type("second")
        terminal.press("alt-enter")
        terminal.type("third")
        terminal.until("  second", "  third")
        terminal.press("enter")
        terminal.until("Hello first\nsecond\nthird")

        terminal.type("something else")
        terminal.until("❯ something else")
        terminal.press("ctrl-c")
        terminal.until("Cleared.", gone="❯ something else")
        terminal.press("ctrl-r")
        terminal.type("firs")
        terminal.until("I-search backward: firs", "❯ %hello first")
        terminal.press("enter")
        terminal.press("enter")
        terminal.until("s)  ::2")

        terminal.press("ctrl-d")
        assert terminal.end() == 0
        assert "then: quit" in terminal.shown


def test_a_long_paste_is_folded_and_submitted_in_full(project):
    text = "\n".join(f"- line {n}" for n in range(1, 13))
    with opened(project) as terminal:
        terminal.type("%hello ")
        terminal.paste(text)
        terminal.until("❯ %hello [Pasted text #1 +11 lines]")
        terminal.press("enter")
        terminal.until("hello completed", "• line 12", "… +4 lines")

        terminal.paste(text)
        terminal.until("❯ [Pasted text #2 +11 lines]")
        terminal.paste(text)
        terminal.until("  - line 11", gone="❯ [Pasted text #2")


def test_the_line_can_be_edited_in_an_editor(project):
    editor = project / "editor"
    editor.write_text("#!/bin/sh\nprintf ' from the editor' >> \"$1\"\n")
    editor.chmod(0o755)
    with opened(project, VISUAL=str(editor)) as terminal:
        terminal.type("%hello you")
        terminal.until("❯ %hello you")
        terminal.press("ctrl-g")
        terminal.until("❯ %hello you from the editor")
        terminal.press("ctrl-x", "ctrl-e")
        terminal.until("❯ %hello you from the editor from the editor")
        terminal.press("enter")
        terminal.until("Hello you from the editor from the editor")


@pytest.mark.requirement("S1-11")
def test_escape_and_enter_stop_the_run_and_control_c_twice_quits(project):
    with opened(project) as terminal:
        terminal.enter("%forever")
        terminal.until("forever started", "1 running")
        terminal.press("esc")
        terminal.until("Stop forever", "? Enter stops it, Esc keeps it.")
        terminal.press("enter")
        terminal.until("forever cancelled", "no active runs")

        terminal.enter("%paint")
        terminal.until("1 waiting:")
        terminal.press("ctrl-c")
        terminal.until("Press Ctrl-C again to quit.")
        terminal.press("ctrl-c")
        assert terminal.end() == 0
        assert re.search(r"paint waiting.*nerve watch [\w-]+", terminal.shown)


def test_the_history_survives_a_restart(project):
    with opened(project) as terminal:
        terminal.enter("%hello again")
        terminal.until("Hello again")
        terminal.enter("/quit")
        assert terminal.end() == 0
    file = project / ".nerve" / "commander_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with opened(project) as terminal:
        terminal.press("up")
        terminal.until("❯ /quit")
        terminal.press("up")
        terminal.until("❯ %hello again")
        terminal.press("enter")
        terminal.until("Hello again")


def test_the_full_screen_can_be_requested(project):
    with opened(project) as terminal:
        terminal.enter("/tui plain")
        terminal.until("Plain mode is already active.")
        terminal.enter("/tui full")
        assert terminal.end() == 0
        assert "then: full" in terminal.shown


def test_no_color_disables_colours(project):
    with opened(project, NO_COLOR="1") as terminal:
        terminal.enter("%review it")
        terminal.until("review completed", "no active runs")
        terminal.enter("%nothing")
        terminal.until("Unknown workflow 'nothing'")
        assert not COLOUR.search(terminal.raw)


def test_a_small_terminal_works(project):
    with Terminal(project, size=(16, 60)) as terminal:
        terminal.until("6 workflows", "no active runs")
        terminal.enter("%paint")
        terminal.until("Which colour?", "1 waiting:")
        terminal.type("/a")
        terminal.until("/answer")
        assert all(len(line) <= 60 for line in terminal.lines)


def test_a_dumb_terminal_gets_plain_lines(project):
    with Terminal(project, TERM="dumb") as terminal:
        terminal.until("6 workflows")
        terminal.type("%paint\n")
        terminal.until("[gate] Which colour? (red or blue)", "  2 blue", "The next line answers it")
        terminal.type("2\n")
        terminal.until("It is blue.")
        terminal.press("ctrl-d")
        assert terminal.end() == 0
        assert "\x1b" not in terminal.raw


@pytest.mark.requirement("S0-05")
def test_piped_lines_are_submitted_in_order_until_the_end(project):
    result = piped(project, "%hello you", "%paint", "/answer green", "/answer 2", "%hello ::paint", "%note")
    assert result.returncode == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert "[workflow] hello started" in lines
    expected = [
        "> %hello you",
        "Hello **you**",
        "> %paint",
        "[gate] Which colour? (red or blue)",
        "  1 red",
        "> /answer green",
        "[gate] Which colour? (red or blue)",
        "  1 red",
        "> /answer 2",
        "[gate] answered: blue",
        "It is blue.",
        "> %hello ::paint",
        "Hello **It is blue.**",
        "[gate] What is to be noted?",
        "then: quit",
    ]
    assert [line for line in lines if line in expected] == expected
    assert "✗ Invalid choice 'green'" in result.stdout
    assert re.search(r"note waiting: What is to be noted\?.*nerve watch", result.stdout)
    assert "\x1b" not in result.stdout


@pytest.mark.requirement("S1-40")
@pytest.mark.requirement("S1-46")
def test_in_a_pipe_the_line_after_a_question_answers_it(project):
    result = piped(project, "%paint", "green", "/runs", "blue", "%note", "all is well", "%hello ::last")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    expected = [
        "> %paint",
        "[gate] Which colour? (red or blue)",
        "> green",
        "[gate] Which colour? (red or blue)",
        "> /runs",
        "> blue",
        "[gate] answered: blue",
        "It is blue.",
        "> %note",
        "[gate] What is to be noted?",
        "> all is well",
        "Noted: all is well",
        "Hello **Noted: all is well**",
    ]
    assert [line for line in lines if line in expected] == expected
    assert "✗ Invalid choice 'green'. Must be one of: ['red', 'blue']" in result.stdout


def test_piped_input_can_stop_its_runs(project):
    result = piped(project, "%forever", "/stop", "/tui full", "/quit", "%hello never")
    assert result.returncode == 0
    assert "forever cancelled" in result.stdout
    assert "The full screen needs a terminal." in result.stdout
    assert "never" not in result.stdout
