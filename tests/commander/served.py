"""A project with its own server, started by the Commander and stopped by the test."""

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
    """Open a Commander in a project; its server keeps running afterwards."""
    server = ProjectServer(folder, idle)
    controller = WorkflowController(server.client(), restart_server=server.start_if_needed)
    await controller.open()
    try:
        yield Scene(controller)
    finally:
        await controller.close()
        await controller.client.close()


async def end_server(folder: Path, number: int = signal.SIGTERM) -> None:
    """Stop the server of a project, even while it starts, and return when it has exited."""
    running = servers(folder)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    async with asyncio.timeout(30):
        while any(map(alive, running)):  # noqa: ASYNC110 - not a child process
            await asyncio.sleep(0.02)


def servers(folder: Path) -> list[int]:
    """Return the ids of the server processes of a project."""
    return [
        int(process.name)
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and serves(process, folder)
    ]


def serves(process: Path, folder: Path) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        return b"serve" in arguments and (process / "cwd").resolve() == folder.resolve()
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # reap our own child after reading its state
    return state != "Z"
