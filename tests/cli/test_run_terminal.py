"""`nerve run` in a terminal: the panel, questions, and Ctrl-C."""

import json
import re

import pytest

from cli.terminal import Terminal
from nerve_processes import done as finished

ASKED = "or the answer: "


def clean(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.requirement("S1-09")
@pytest.mark.requirement("S1-10")
def test_the_user_is_prompted_again_and_can_answer_by_number(project) -> None:
    with Terminal("run", "ship", "hello", "--count=3", "--with", "nodes.py") as terminal:
        shown = clean(terminal.until(ASKED))
        for line in ("Workflow Progress", "✓ build", "⏸ Waiting for Input: approve", "Ship it?", "1 yes"):
            assert line in shown
        assert "built 3" in shown.split("Waiting for Input: approve")[1]
        terminal.type("maybe")
        assert "Invalid choice 'maybe'. Must be one of: ['yes', 'no']" in clean(terminal.until(ASKED))
        terminal.type("1")
        assert terminal.end() == 0
        assert "told hello" in terminal.shown


def test_end_of_input_at_a_text_prompt_leaves_the_run_waiting(project) -> None:
    with Terminal("run", "asking") as terminal:
        terminal.until("Answer: ")
        terminal.type("blue")
        assert terminal.end() == 0
        assert "blue" in terminal.shown
    with Terminal("run", "asking") as terminal:
        assert "None" not in clean(terminal.until("Answer: "))
        terminal.press("\x04")
        assert terminal.end() == 4
        assert re.search(r"Answer: \r?\n", clean(terminal.shown))
        assert "Resume with: nerve resume" in clean(terminal.shown)


def test_ctrl_c_parks_the_run_and_prints_the_resume_command(project) -> None:
    with Terminal("run", "ship", "hello", "--count=3", "--with", "nodes.py") as terminal:
        terminal.until(ASKED)
        terminal.interrupt()
        assert terminal.end() == 130
        said = clean(terminal.shown)
        assert "Interrupted. The run is parked." in said
        assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")
    again = said.split("Resume with: nerve ")[1].split()
    done = finished(*again, "--answer", "approve=yes")
    assert done.returncode == 0
    assert "told hello" in done.stdout
    assert (project / "effects").read_text() == "built\n"


def test_a_narrow_terminal_shows_whole_ids_and_one_line_for_each_step(project) -> None:
    run = json.loads(finished("start", "shout", "--json").stdout)["run_id"]
    with Terminal("runs", columns=36) as terminal:
        assert terminal.end() == 0
        [line] = clean(terminal.shown).splitlines()[1:]
        assert line.split() == [run[:13], "shout", "✓", "completed"]
    with Terminal("status", run, columns=36) as terminal:
        assert terminal.end() == 0
        assert all(len(line) <= 36 for line in clean(terminal.shown).splitlines() if "say" in line)
        assert re.search(r"└─ ✓ say .*\(\d\.\ds\)", clean(terminal.shown))


def test_watch_without_a_server_prompts_for_gates_and_resumes_the_run(project) -> None:
    assert finished("start", "parent", "--label", "p").returncode == 4
    with Terminal("watch", "p") as terminal:
        assert "Waiting for Input: colour" in clean(terminal.until("Answer: "))
        terminal.type("blue")
        assert terminal.end() == 0
        assert "child said blue" in terminal.shown
    assert finished("watch", "p").stdout == "child said blue\n"


def test_watch_shows_the_current_state_if_agents_are_missing(project) -> None:
    assert finished("start", "ship", "--count=1", "--label", "s", "--with", "nodes.py").returncode == 4
    with Terminal("watch", "s") as terminal:
        assert terminal.end() == 4
        shown = clean(terminal.shown)
        assert "Agent not found: notifier" in shown
        assert "⏸ approve" in shown


def test_a_gate_timeout_ends_the_prompt(project) -> None:
    (project / "late.yaml").write_text(
        "name: late\ndescription: d\n"
        "body: {kind: gate, id: ask, prompt: 'Now?', timeout: 0.5, default: 'later'}\n"
    )
    with Terminal("run", "late.yaml") as terminal:
        terminal.until("Answer: ")
        assert terminal.end() == 0
        assert "The gate is closed" in clean(terminal.shown)
        assert clean(terminal.shown).rstrip().endswith("later")


def test_input_typed_before_a_gate_opens_does_not_answer_it(project) -> None:
    (project / "slow.yaml").write_text(
        "name: slow\ndescription: d\nbody: {kind: sequence, steps: ["
        "{kind: bash, id: build, command: 'touch begun; while [ ! -e go ]; do sleep 0.01; done'},"
        "{kind: gate, id: ask, prompt: 'Ship it?', choices: ['yes', 'no'], reject: ['no']}]}\n"
    )
    with Terminal("run", "slow.yaml") as terminal:
        terminal.until("● build")
        terminal.type("yes")
        terminal.until("yes")  # the terminal has it
        (project / "go").touch()
        terminal.until(ASKED)
        terminal.type("no")
        assert terminal.end() == 3


def test_what_a_step_prints_is_shown_above_the_panel(project) -> None:
    (project / "talk.py").write_text(
        "def register(session):\n"
        "    @session.step\n"
        "    def talk() -> str:\n"
        "        print('printed by the step')\n"
        "        return 'done'\n"
        "    @session.workflow\n"
        "    async def work(ctx):\n"
        "        print('printed by the workflow')\n"
        "        return await talk()\n"
    )
    with Terminal("run", "work", "--with", "talk.py") as terminal:
        assert terminal.end() == 0
        shown = clean(terminal.shown)
    assert "[talk] printed by the step\r\n" in shown
    assert "printed by the workflow\r\n" in shown
    assert shown.count("[talk] printed by the step") == 1
    assert shown.rstrip().endswith("done")
