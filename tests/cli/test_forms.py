"""Gates with a form on the command line: their fields are told, and they are answered by JSON."""

import re
import shlex
from pathlib import Path

import pytest

from cli.terminal import Terminal

RELEASE = """name: release
body:
  kind: sequence
  steps:
    - kind: gate
      id: which
      prompt: Which one?
      form:
        type: object
        properties:
          version: {type: string, description: What is shipped}
          dry: {type: boolean}
        required: [version]
    - {kind: transform, expression: "'shipped ' + given.version"}
"""
FIELDS = ["    version  text, required: What is shipped", "    dry      true or false"]


@pytest.fixture
def release(project: Path) -> None:
    (project / ".nerve/workflows/release.yaml").write_text(RELEASE)


@pytest.mark.usefixtures("release")
def test_without_a_terminal_the_fields_and_the_command_are_printed(do) -> None:
    done = do("run", "release")
    assert done.code == 4
    told = done.err.splitlines()
    assert '[gate] Which one? (such as {"version": "…"})' in told
    assert told[-4:-1] == ["  at gate 'which': Which one?", *FIELDS]
    assert told[-1].endswith("""--answer 'which={"version": "…"}'""")


@pytest.mark.usefixtures("release")
def test_open_gates_are_listed_with_their_fields_and_the_command_that_answers(do) -> None:
    do("run", "release")
    first, *fields = do("gates").out.splitlines()
    assert fields == FIELDS
    run = re.search(r"""nerve answer (\S+) '{"version": "…"}' --gate \w+$""", first)
    assert run is not None
    refused = do("answer", run[1], '{"dry": true}')
    assert refused.code == 2
    assert "'version' is a required property" in refused.err
    assert "requires a form answer" in do("approve", run[1]).err
    done = do("answer", run[1], '{"version": "3"}')
    assert (done.code, done.out) == (0, "shipped 3\n")
    assert '[gate] answered: {"version": "3"}' in done.err


@pytest.mark.usefixtures("release")
def test_an_invalid_answer_is_refused_before_the_run_starts(do) -> None:
    wrong = do("run", "release", "--answer", "which=3")
    assert wrong.code == 2
    assert "--answer which=3: Invalid answer: 3 is not of type 'object'." in wrong.err
    assert do("run", "release", "--answer", 'which={"version": "4"}').out == "shipped 4\n"


@pytest.mark.usefixtures("release")
def test_a_terminal_prompt_shows_the_fields_and_repeats_after_a_wrong_answer() -> None:
    asked = 'Answer (such as {"version": "…"}): '
    with Terminal("run", "release") as terminal:
        shown = terminal.until(asked)
        assert "version  text, required: What is shipped" in shown
        terminal.type("3")
        assert "Invalid answer: 3 is not of type 'object'" in terminal.until(asked)
        terminal.type('{"version": "5"}')
        assert terminal.end() == 0
        assert "shipped 5" in terminal.shown


def test_open_gates_are_listed_with_their_input_preview(do, project: Path) -> None:
    flow = "name: judge\nbody: {kind: gate, id: ok, prompt: 'Approve?', choices: [approve, reject]}\n"
    (project / ".nerve/workflows/judge.yaml").write_text(flow)
    do("run", "judge", "the summary")
    assert do("gates").out.splitlines()[1:] == ["    the summary"]
    assert do("gates", "--json").json[0]["input_preview"] == "the summary"


def test_a_typed_gate_is_answered_by_a_choice_and_by_json(do, project: Path) -> None:
    (project / "shop.py").write_text(
        """
from dataclasses import dataclass
from decimal import Decimal

@dataclass
class Offer:
    price: Decimal

def register(session):
    @session.workflow
    async def sell(ctx):
        if await ctx.gate("Sell it?", type=bool):
            return str((await ctx.gate("For how much?", type=Offer)).price + 1)
"""
    )
    waiting = do("run", "shop.py", "--answer", "gate=yes")
    assert "at gate 'gate': For how much?\n    price  decimal, required\n" in waiting.err
    again = shlex.split(waiting.err.split("Resume with: nerve ")[1])
    assert again[-1] == 'gate={"price": "1.50"}'
    wrong = do(*again[:-1], 'gate={"price": "much"}')
    assert "'much' is not a 'decimal' at ['price']" in wrong.err
    assert do(*again).out == "2.50\n"
