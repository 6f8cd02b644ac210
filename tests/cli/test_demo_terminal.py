"""`nerve demo` in a terminal: the panel, the question, and Ctrl-C."""

import re
import sys

import pytest

from cli.terminal import Terminal

QUESTION = "(Enter: reject)"


def clean(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.requirement("S1-09")
@pytest.mark.requirement("S1-10")
def test_a_person_is_asked_and_asked_again(scratch) -> None:
    with Terminal("demo") as terminal:
        shown = clean(terminal.until(QUESTION))
        for line in (
            "Workflow Progress",
            "🔄 dev_coach_review",
            "● dev[2]",
            "↻ round 2/5",
            "⏸ Waiting for Input",
        ):
            assert line in shown
        terminal.type("y")
        assert "Invalid choice 'y'" in terminal.until(QUESTION)
        terminal.type("Approve")
        assert terminal.end() == 0
        assert "slug.py is merged." in terminal.shown
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--crash"]])
def test_ctrl_c_says_that_the_folder_is_gone(arguments, scratch) -> None:
    with Terminal("demo", *arguments) as terminal:
        terminal.until(QUESTION)
        terminal.interrupt()
        assert terminal.end() == 130
        said = " ".join(clean(terminal.shown).split())
        assert said.endswith(
            "Interrupted. The folder is removed and the run with it; --keep would keep both."
        )
        assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")
    assert not list(scratch.iterdir())


def test_an_interrupted_run_goes_on_with_the_command_it_names(scratch) -> None:
    with Terminal("demo", "--keep") as terminal:
        terminal.until("● dev[2]")
        terminal.interrupt()
        assert terminal.end() == 130
        command = "".join(clean(terminal.shown).split("Go on with: ")[1].split("\r\n"))
        program, arguments = command.split(" -m nerve ")
        assert program == sys.executable
    with Terminal(*arguments.split()) as terminal:
        terminal.until(QUESTION)
        terminal.type("")  # which is the default
        assert terminal.end() == 0
        assert "slug.py is not merged." in terminal.shown
        assert re.search(r"reused   [23] steps settled before, from the journal", clean(terminal.shown))
        assert "no settled step ran twice" in clean(terminal.shown)
