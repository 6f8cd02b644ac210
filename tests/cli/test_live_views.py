"""While an agent works, terminals show its tool calls, its text as it streams, tokens and cost."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from commander.e2e.plain_terminal import Terminal
from commander.served import end_server

NERVE = [sys.executable, "-m", "nerve"]
WORKER = """
import asyncio
from pathlib import Path

from nerve.agents.provider import (
    AssistantText, Capabilities, ThreadStarted, ToolCall, ToolUpdate, TurnFinished, TurnUsage
)


async def wait_for(name):
    while not Path(name).exists():
        await asyncio.sleep(0.02)


class Worker:
    name = "worker"
    capabilities = Capabilities()

    async def query(self, prompt, cwd, resume, options):
        yield ThreadStarted("t")
        if "Plan" in prompt:
            yield AssistantText("The plan is short.")
            yield TurnFinished("t", TurnUsage(input_tokens=1200, output_tokens=300, cost=0.25))
            return
        yield ToolCall("Bash", {"command": "make test"}, "1")
        await wait_for("tool-seen")
        yield ToolUpdate("1", "completed", "12 passed")
        yield AssistantText("All tests ", partial=True)
        yield AssistantText("pass so far\\n", partial=True)
        await wait_for("text-seen")
        yield AssistantText("All tests pass so far\\nand now they are done.")
        yield TurnFinished("t", TurnUsage(input_tokens=2000, output_tokens=100, cost=0.5))


def register(session):
    session.providers["worker"] = Worker()
"""
WORK = """
name: work
description: Works
provider: worker
nodes:
  - {id: plan, prompt: Plan it}
  - {id: do, prompt: Do it, depends_on: [plan]}
"""


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    (tmp_path / ".nerve/workflows").mkdir(parents=True)
    (tmp_path / ".nerve/workflows/work.yaml").write_text(WORK)
    (tmp_path / "worker.py").write_text(WORKER)
    yield tmp_path
    await end_server(tmp_path)


def see_the_agent_work(terminal: Terminal, folder: Path) -> None:
    """Wait for the tool call, then for the streamed text, then for the end."""
    terminal.until("make test")
    (folder / "tool-seen").touch()
    terminal.until("pass so far", gone="now they are done")
    (folder / "text-seen").touch()
    terminal.until("now they are done")


def test_nerve_run_shows_an_agent_while_it_works(folder: Path) -> None:
    with Terminal(folder, [*NERVE, "run", "work", "--with", "worker.py"]) as terminal:
        terminal.until("1.5k tokens · $0.25")
        see_the_agent_work(terminal, folder)
        terminal.until("3.6k tokens · $0.75")
        assert terminal.end() == 0


@pytest.mark.parametrize("arguments", [["--plain"], []], ids=["lines", "full-screen"])
async def test_the_commander_shows_an_agent_while_it_works(folder: Path, arguments: list[str]) -> None:
    command = [*NERVE, "commander", *arguments, "--with", "worker.py"]
    with Terminal(folder, command) as terminal:
        await asyncio.to_thread(terminal.until, "❯", "work")
        terminal.enter("%work")
        await asyncio.to_thread(see_the_agent_work, terminal, folder)
        await asyncio.to_thread(terminal.until, "$0.75")
        terminal.press("ctrl-d")


def test_logs_show_an_agent_while_it_works(folder: Path) -> None:
    command = [*NERVE, "run", "work", "--with", "worker.py"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        try:
            while "make test" not in run.stderr.readline():
                assert run.poll() is None
            with Terminal(folder, [*NERVE, "logs", "work", "--follow"]) as terminal:
                see_the_agent_work(terminal, folder)
                terminal.until("1.5k tokens", "$0.25", "2.1k tokens", "$0.5")
                assert terminal.end() == 0
        finally:
            for name in ("tool-seen", "text-seen"):
                (folder / name).touch()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.communicate(timeout=30)
            run.kill()
