"""How a run was left, as `nerve run` says it at its end."""

from pathlib import Path

import pytest

from nerve.cli.outcome import RunOutcome, format_outcome
from nerve.cli.parameters import DEFAULT_OPTIONS
from nerve_processes import done


def test_a_gate_prompt_cannot_imitate_an_outcome_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'name: w\ndescription: d\nnodes:\n  - {id: g, gate: "Well?\\n✓ run 1 completed"}\n'
    (tmp_path / "w.yaml").write_text(text)
    said = done("run", "w.yaml").stderr
    assert "  at gate 'g': Well?" in said
    assert not [line for line in said.splitlines() if line.startswith("✓")]


MAIL = """
import asyncio

def register(session):
    @session.workflow(channels={"orders": str})
    async def box(ctx):
        return await ctx.receive("orders")

    @session.workflow
    async def two(ctx):
        return await ctx.receive("orders") + await ctx.receive("orders")

    @session.workflow
    async def outer(ctx):
        return await ctx.run_workflow("box")

    @session.workflow
    async def both(ctx):
        return await asyncio.gather(ctx.receive("orders"), ctx.gate("Sure?"))

    @session.workflow
    async def alarm(ctx):
        ctx.update("set", lambda value: None)
        return await ctx.wait_signal("ring", key="bell")
"""


@pytest.fixture
def mail(project: Path) -> None:
    (project / "mail.py").write_text(MAIL)


@pytest.mark.parametrize("name", ["box", "outer"])
@pytest.mark.usefixtures("mail")
def test_a_run_that_waits_for_a_message_names_the_command_that_sends_it(name: str, do) -> None:
    waiting = do("run", f"mail.py:{name}", "--label", "r")
    assert waiting.code == 4
    assert waiting.err.splitlines()[-2] == "  for message 'orders'"
    assert "Resume with" not in waiting.err
    command = waiting.err.splitlines()[-1].removeprefix("Send it with: nerve ").split()
    assert command[0] == "send"
    assert command[2:] == ["orders", "VALUE", "--with", "mail.py"]
    do(*(word.replace("VALUE", "tea") for word in command))
    assert do("resume", "r", "--with", "mail.py").out == "tea\n"


@pytest.mark.usefixtures("mail")
def test_a_sent_message_says_how_it_leaves_the_run(do) -> None:
    do("run", "mail.py:two", "--label", "r")
    sent = do("send", "r", "orders", "a", "--with", "mail.py")
    assert sent.err.endswith(' is waiting for message "orders"\n')
    assert do("send", "r", "orders", "b", "--with", "mail.py").err.endswith(" is completed\n")


@pytest.mark.usefixtures("mail")
def test_a_run_with_a_gate_and_a_message_names_both_commands(do) -> None:
    send, resume = do("run", "mail.py:both").err.splitlines()[-2:]
    assert send.startswith("Send it with: nerve send ")
    assert resume.endswith("--with mail.py --answer gate=TEXT")


@pytest.mark.usefixtures("mail")
def test_a_signal_is_sent_by_resume_without_a_server_and_by_signal_with_one(do) -> None:
    last = do("run", "mail.py:alarm").err.splitlines()[-1]
    assert last.startswith("Resume with: nerve resume ")
    assert last.endswith(" --with mail.py --answer ring=TEXT")
    outcome = RunOutcome("r", "alarm", "waiting", waits=[{"signal": "ring", "key": "bell"}])
    lines = format_outcome(outcome, DEFAULT_OPTIONS, has_server=True)
    assert lines == [
        "⏸ run r waits",
        "  for signal 'ring' with key 'bell'",
        "Send it with: nerve signal ring VALUE --key bell",
    ]
