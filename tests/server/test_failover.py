"""Two servers with one database: one owns the session, the other takes over when the first is gone."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nerve.client import Client

WORKFLOW = """
from pathlib import Path
from nerve import BashNode, FunctionNode

def register(session):
    async def count(context):
        with Path("executed").open("a") as file:
            file.write(f"{context.path}\\n")
        return context.input

    FunctionNode("count", session, count)
    BashNode("sleep", session, "echo $$ > pid; exec sleep 600")

    @session.workflow
    async def ask(ctx):
        for number in range(3):
            await ctx.run("count", number)
        return await ctx.gate("Continue?")

    @session.workflow
    async def long(ctx):
        await ctx.run("sleep")
"""


class ServerProcess:
    """`nerve serve` in a folder of its own, as on another machine."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "work.py").write_text(WORKFLOW)
        arguments = ["-m", "nerve", "serve", "--port", "0", "--json", "--with", "work.py"]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env={**os.environ, "NERVE_STORE": url},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_ready(self) -> dict[str, Any]:
        """Return what the server prints when it owns the session."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        ready: dict[str, Any] = json.loads(line)
        return ready

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text(), self.log)

    def client(self) -> Client:
        client = Client.of_project(self.folder)
        assert client is not None
        return client

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.communicate()


async def wait_for_result(client: Client, run_id: str) -> object:
    deadline = time.monotonic() + 30
    while (run := await client.run(run=run_id)).state != "completed":
        assert time.monotonic() < deadline, run
        await asyncio.sleep(0.05)
    return run.result


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_until(condition: Any, about: object = "") -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, about
        time.sleep(0.05)


@pytest.fixture
def two_servers(tmp_path: Path, postgresql_url: str) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A server that owns the session, and one that waits to take over."""
    with ExitStack() as stack:
        owner = ServerProcess(tmp_path / "owner", postgresql_url)
        stack.callback(owner.end)
        owner.wait_ready()
        standby = ServerProcess(tmp_path / "standby", postgresql_url)
        stack.callback(standby.end)
        standby.wait_for_log("takes over when that process has ended")
        yield owner, standby


async def test_the_other_server_continues_the_runs_of_a_killed_one_in_less_than_ten_seconds(
    two_servers: tuple[ServerProcess, ServerProcess],
) -> None:
    owner, standby = two_servers
    async with owner.client() as client:
        waiting = await client.start(workflow="ask", key="waiting", wait=True)
        answered = await client.start(workflow="ask", key="answered", wait=True)
        await client.answer(run=answered.run_id, answer="yes")  # and the owner dies before it acts on it
    owner.process.kill()
    killed_at = time.monotonic()
    assert standby.wait_ready()["recovered"] >= 1
    assert time.monotonic() - killed_at < 10
    async with standby.client() as client:
        assert await wait_for_result(client, answered.run_id) == "yes"
        assert (await client.start(workflow="ask", key="waiting")).run_id == waiting.run_id
        await client.answer(run=waiting.run_id, answer="no")
        assert await wait_for_result(client, waiting.run_id) == "no"
    assert not (standby.folder / "executed").exists(), "no settled step is repeated"
    assert len((owner.folder / "executed").read_text().splitlines()) == 6


async def test_a_stopped_server_that_continues_ends_its_processes_and_itself_and_says_so(
    two_servers: tuple[ServerProcess, ServerProcess],
) -> None:
    owner, standby = two_servers
    async with owner.client() as client:
        await client.start(workflow="long")
    wait_until(lambda: (owner.folder / "pid").exists() and (owner.folder / "pid").read_text())
    pid = int((owner.folder / "pid").read_text())
    owner.process.send_signal(signal.SIGSTOP)
    standby.wait_ready()
    assert is_alive(pid)
    owner.process.send_signal(signal.SIGCONT)
    assert owner.process.wait(30) == 1
    assert "Another process has taken over the session" in owner.log.read_text()
    wait_until(lambda: not is_alive(pid))


def test_a_password_appears_nowhere(
    two_servers: tuple[ServerProcess, ServerProcess], postgresql_url: str
) -> None:
    password = postgresql_url.split(":")[2].split("@")[0]
    for server in two_servers:
        command_line = Path(f"/proc/{server.process.pid}/cmdline").read_text()
        files = [path for path in server.folder.rglob("*") if path.is_file()]
        assert password not in command_line + "".join(path.read_text(errors="replace") for path in files)
