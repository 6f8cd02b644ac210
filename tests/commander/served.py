"""A project with a server of its own, which is started by the Commander and ended by the test."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from commander.scene import Scene
from nerve.commander import WorkflowController
from nerve.commander.project_server import ProjectServer

SHIP = """
name: ship
body:
  kind: sequence
  steps:
    - {kind: bash, id: build, command: "echo built >> effects; echo one; echo two"}
    - {kind: gate, id: approve, prompt: "Ship it?", choices: ["yes", "no"]}
    - {kind: bash, id: send, command: "echo sent >> effects"}
    - {kind: transform, expression: "'shipped ' + input"}
"""
SLOW = """
name: slow
body:
  kind: sequence
  steps:
    - kind: bash
      id: work
      command: "echo 1; echo 2; echo 3; while [ ! -e go ]; do sleep 0.05; done; echo end"
"""
HELLO = """
name: hello
description: Greets
body: {kind: transform, expression: "'hello ' + input"}
"""


def project(folder: Path) -> Path:
    workflows = folder / ".nerve" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "ship.yaml").write_text(SHIP)
    (workflows / "hello.yaml").write_text(HELLO)
    (workflows / "slow.yaml").write_text(SLOW)
    return folder


def server_pid(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / ".nerve/server.json").read_text())["pid"])
    except (OSError, ValueError):
        return None


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().split()


@contextlib.asynccontextmanager
async def at_home(folder: Path, idle: float = 60) -> AsyncIterator[Scene]:
    """A commander at home in a project; its server stays when it is left."""
    home = ProjectServer(folder, idle)
    controller = WorkflowController(home.client(), restart_server=home.start_if_needed)
    await controller.open()
    try:
        yield Scene(controller)
    finally:
        await controller.close()
        await controller.client.close()


async def end_server(folder: Path, number: int = signal.SIGTERM) -> None:
    """End the server of a project, although it is just being started, and return when it is gone."""
    running = servers(folder)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    async with asyncio.timeout(30):
        while any(map(alive, running)):  # noqa: ASYNC110 - a process of somebody else tells nobody
            await asyncio.sleep(0.02)


def servers(folder: Path) -> list[int]:
    """The processes that serve a project, or are about to."""
    return [
        int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and serves(each, folder)
    ]


def serves(process: Path, folder: Path) -> bool:
    try:
        said = (process / "cmdline").read_bytes().split(b"\0")
        return b"serve" in said and (process / "cwd").resolve() == folder.resolve()
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that its parent has not taken leave of does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # behind the look: one of ours that has ended is not left
    return state != "Z"
