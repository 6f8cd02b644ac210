"""The controller with its own server: killed and restarted, nothing lost or duplicated."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from commander.scene import Scene
from commander.served import at_home, effects, end_server, project, server_pid
from nerve.api.models import WorkflowResponse
from nerve.commander import WorkflowController
from nerve.commander.project_server import ProjectServer

SHIPPED = [
    "[workflow] ship started",
    "[build] ✓ two",
    "[gate] Ship it? (yes or no)",
    "[gate] answered: yes",
    "[send] ✓",
]


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    yield project(tmp_path)
    await end_server(tmp_path)


def plain(lines: list[str]) -> list[str]:
    """Remove durations from lines."""
    return [line.rpartition(" (")[0].rstrip() if line.endswith("s)") else line for line in lines]


async def test_a_killed_server_is_restarted_and_nothing_is_lost_or_duplicated(folder: Path) -> None:
    async with at_home(folder) as at:
        await at.enter("%ship it", "%ship that", "%slow")
        await at.until(lambda: len(at.state.gates) == 2)
        await at.until(lambda: at.runs[2].parts and "3" in at.runs[2].parts[0].text)
        first = server_pid(folder)
        await end_server(folder, signal.SIGKILL)
        await at.enter("%hello you")
        await at.until(lambda: at.state.is_connected and server_pid(folder) not in (None, first))
        await at.ended(at.runs[3])
        (folder / "go").touch()
        await at.enter("/answer 1 yes", "/approve")
        await at.ended()
        assert [block.value for block in at.runs] == [
            "shipped it",
            "shipped that",
            "1\n2\n3\nend\n",
            "hello you",
        ]
        assert [part.text for part in at.runs[2].parts] == ["1\n2\n3\n", "1\n2\n3\nend\n"]
        assert [plain(block.lines) for block in at.runs[:2]] == [SHIPPED, SHIPPED]
        assert [part.text for part in at.runs[0].parts if part.name == "build"] == ["one\ntwo\n"]
        assert [block.value for block in at.state.blocks if block.kind == "gate"] == ["yes", "yes"]
        assert len(at.state.runs) == len((await at.client.runs()).runs) == 4
        assert at.errors == []
    assert sorted(effects(folder)) == ["built", "built", "sent", "sent"]


async def test_an_answer_during_a_server_crash_counts_once(folder: Path) -> None:
    async with at_home(folder) as at:
        await at.enter("%ship it")
        await at.until(lambda: at.state.gates)
        pid = server_pid(folder)
        assert pid is not None
        answering = asyncio.create_task(at.controller.answer_gate(at.state.gates[0], "yes"))
        os.kill(pid, signal.SIGKILL)
        assert await answering == ""
        await at.ended()
        assert plain(at.runs[0].lines) == SHIPPED
    assert effects(folder) == ["built", "sent"]


async def test_a_workflow_without_input_starts_as_on_the_command_line(folder: Path) -> None:
    (folder / ".nerve/workflows/given.yaml").write_text(
        "name: given\nbody: {kind: transform, expression: '({input: input})'}\n"
    )
    async with at_home(folder) as at:
        await at.enter("%given", "%given x")
        await at.ended()
        assert [block.value for block in at.runs] == [{"input": None}, {"input": "x"}]


OPEN = """
name: open
body: {kind: gate, id: what, prompt: "What?"}
"""
BYE = """
name: bye
inputs: {to: {type: string, default: all}}
body: {kind: transform, expression: "'bye ' + inputs.to"}
"""


async def read(at: Scene, has: Callable[[WorkflowResponse], bool]) -> None:
    """Return when the server has loaded a file; the Commander gets no event."""
    async with asyncio.timeout(20):
        while not any(map(has, (await at.client.workflows()).workflows)):  # noqa: ASYNC110 - the server sends no event
            await asyncio.sleep(0.02)


async def test_a_new_or_changed_workflow_file_can_be_started(folder: Path) -> None:
    file = folder / ".nerve/workflows/bye.yaml"
    async with at_home(folder) as at:
        await at.enter("%hello you")
        file.write_text(BYE)
        await read(at, lambda flow: flow.id == "bye")
        await at.enter("%bye --to=them")
        file.write_text(BYE.replace("to", "who"))
        await read(at, lambda flow: "who" in [each.name for each in flow.inputs])
        await at.enter("%bye --who=us")
        await at.ended()
        assert (at.errors, [block.value for block in at.runs]) == ([], ["hello you", "bye them", "bye us"])


async def test_a_new_workflow_is_offered_while_typing(folder: Path) -> None:
    async with at_home(folder) as at:
        (folder / ".nerve/workflows/bye.yaml").write_text(BYE)
        await read(at, lambda flow: flow.id == "bye")
        at.controller.complete("%", 1)
        await at.until(lambda: "%bye" in [each.text.strip() for each in at.controller.complete("%b", 2)])


async def test_the_name_of_a_new_workflow_does_not_answer_a_gate(folder: Path) -> None:
    (folder / ".nerve/workflows/open.yaml").write_text(OPEN)
    async with at_home(folder) as at:
        await at.enter("%open")
        await at.until(lambda: at.state.gates)
        (folder / ".nerve/workflows/bye.yaml").write_text(BYE)
        await read(at, lambda flow: flow.id == "bye")
        await at.enter("/gates what", "%bye")
        await at.ended(at.runs[1])
        assert (at.runs[1].value, len(at.state.gates)) == ("bye all", 1)


async def test_reopening_the_commander_shows_everything(folder: Path) -> None:
    async with at_home(folder) as at:
        await at.enter("%ship it", "%hello you")
        await at.until(lambda: at.state.gates)
        await at.ended(at.runs[1])
        run_id = at.runs[0].run_id
        assert f"nerve watch {run_id}" in "\n".join(at.controller.exit_message())
    await end_server(folder)
    async with at_home(folder) as again:
        assert [card.state for card in again.state.runs.values()] == ["completed", "waiting"]
        await again.enter(f"/watch {run_id}", "/approve")
        await again.ended()
        assert plain(again.runs[0].lines) == SHIPPED


async def test_runs_of_the_command_line_appear_and_answers_there_close_the_gate(folder: Path) -> None:
    async def nerve(*arguments: str) -> str:
        command = [sys.executable, "-m", "nerve", *arguments]
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=subprocess.PIPE)
        out, _ = await process.communicate()
        return out.decode().strip()

    async with at_home(folder) as at:
        run_id = await nerve("start", "ship", "it", "--label", "v3")
        await at.until(lambda: at.state.gates)
        assert at.state.runs[run_id].name == "v3"
        await at.enter("/watch v3", "/gates 1")
        await nerve("answer", "v3", "yes")
        await at.ended()
        assert (at.state.open_gate_id, at.runs[0].value) == (None, "shipped it")


async def test_a_command_waits_for_the_starting_server(folder: Path) -> None:
    home = ProjectServer(folder, idle_timeout_s=60)
    controller = WorkflowController(home.client(), restart_server=home.start_if_needed)
    opening = asyncio.create_task(controller.open())
    try:
        await controller.submit("/help")
        assert home.endpoint is None
        await controller.submit("/workflows")
        assert [block.kind for block in controller.state.blocks] == ["input", "text", "input", "text"]
        assert "%hello" in controller.state.blocks[-1].text
    finally:
        await opening
        await controller.close()
        await controller.client.close()


async def test_writes_lost_by_a_damaged_log_are_reported(folder: Path) -> None:
    async with at_home(folder) as at:
        await at.enter("%ship it")
        await at.until(lambda: at.state.gates)
        log = folder / ".nerve/nerve.db-wal"
        await end_server(folder, signal.SIGKILL)
        os.truncate(log, log.stat().st_size - 5000)
        await at.enter("%hello you")
        await at.until(lambda: any("has lost writes that were acknowledged" in each for each in at.errors))
