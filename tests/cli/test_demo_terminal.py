"""`nerve demo` in a terminal: the panel, the question, and Ctrl-C."""

import re
import sys

import pytest

from cli.terminal import Terminal

QUESTION = "1 to 2, or the answer: "


def clean(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.requirement("S1-09")
@pytest.mark.requirement("S1-10")
def test_the_user_is_prompted_again_after_a_wrong_answer(scratch) -> None:
    with Terminal("demo") as terminal:
        shown = clean(terminal.until(QUESTION))
        for line in (
            "Workflow Progress",
            "🔄 dev_coach_review",
            "↻ round 2/5",
            "⏸ gate",
            "⏸ Waiting for Input: gate",
        ):
            assert line in shown
        terminal.type("maybe")
        assert "Invalid choice 'maybe'" in terminal.until(QUESTION)
        terminal.type("Approve")
        assert terminal.end() == 0
        assert "slug.py is merged." in terminal.shown
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--crash"]])
def test_ctrl_c_reports_that_the_folder_was_removed(arguments, scratch) -> None:
    with Terminal("demo", *arguments) as terminal:
        terminal.until(QUESTION)
        terminal.interrupt()
        assert terminal.end() == 130
        said = " ".join(clean(terminal.shown).split())
        assert said.endswith("Interrupted. The folder and the run were removed. Use --keep to keep them.")
        assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")
    assert not list(scratch.iterdir())


def test_an_interrupted_demo_resumes_with_the_printed_command(scratch) -> None:
    with Terminal("demo", "--keep") as terminal:
        terminal.until("↻ round 1/5")
        terminal.interrupt()
        assert terminal.end() == 130
        command = "".join(clean(terminal.shown).split("Resume with: ")[1].split("\r\n"))
        program, arguments = command.split(" -m nerve ")
        assert program == sys.executable
    with Terminal(*arguments.split()) as terminal:
        terminal.until(QUESTION)
        terminal.type("reject")
        assert terminal.end() == 0
        assert "slug.py is not merged." in terminal.shown
        assert re.search(r"reused   [123] steps? settled before, from the journal", clean(terminal.shown))
        assert "no settled step ran twice" in clean(terminal.shown)
