"""A process killed in the middle of a tool call repeats no completed step."""

import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path

from nerve import Session
from nerve.agents.provider import ThreadStarted
from nerve.testing import ScriptedProvider

FOLDER = Path(sys.argv[1])


def note(word):
    with (FOLDER / "log").open("a") as file:
        file.write(word + chr(10))


def answer(call):
    return [ThreadStarted(call.thread), {"tool": "work", "input": {"word": "tool"}}, "done"]


agent = ScriptedProvider(answer)
session = Session(store=FOLDER / "n.db", project=FOLDER, providers={"agent": agent})


@session.tool
def work(word: str) -> str:
    note(word)
    if (FOLDER / "log").read_text().count(word) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "worked"


@session.node
def first(context):
    note("first")


session.load('''
name: flow
description: d
nodes:
  - {id: one, prompt: x, agent: first}
  - {id: two, prompt: Go., provider: agent, tools: [work], depends_on: [one]}
''')


async def main():
    async with session:
        runs = await session.recover()
        run = runs[0] if runs else await session.start("flow")
        print(await run.wait())
        for event in await run.history():
            if event.event_type == "tool_call":
                print(event.data.get("name") or event.data["status"])
        print(agent.calls[0].prompt[:20], agent.calls[0].resume)


asyncio.run(main())
"""


def run_program(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_run_that_was_killed_in_a_tool_continues_with_its_agent(tmp_path: Path) -> None:
    assert run_program(tmp_path).returncode == -signal.SIGKILL
    again = run_program(tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "log").read_text().split() == ["first", "tool", "tool"]
    result, *lines = again.stdout.splitlines()
    assert result == "done"
    assert lines == ["work", "work", "completed", "You were interrupted thread-1"]
