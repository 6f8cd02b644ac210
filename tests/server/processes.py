"""Servers as processes with a folder of their own, as on several machines, and one database."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from nerve.api.callers import Scope
from nerve.client import Client
from nerve.project.paths import ProjectPaths
from nerve.server.tokens import token_file
from nerve_processes import Process

WORKFLOW = """
from pathlib import Path
from nerve import BashNode, FunctionNode, Queue

def register(session):
    session.add_queue(Queue("mail", concurrency=1))

    async def count(context):
        with Path("executed").open("a") as file:
            file.write(f"{context.path}\\n")
        return context.input

    FunctionNode("count", session, count)
    BashNode("broken", session, "test -e mended")
    BashNode("sleep", session, "echo $$ > pid; exec sleep 600")

    @session.workflow
    async def ask(ctx):
        for number in range(3):
            await ctx.run("count", number)
        return await ctx.gate("Continue?")

    @session.workflow
    async def echo(ctx, value):
        return value

    @session.workflow
    async def agree(ctx):
        return await ctx.gate("Ship?", choices=["approve", "reject"], approvers=["lead"], quorum=2)

    @session.workflow
    async def talk(ctx):
        total = 0

        async def add(number):
            nonlocal total
            total += number
            return total

        ctx.query("total", lambda: total)
        ctx.update("add", add)
        await ctx.receive("end")
        return total

    @session.workflow
    async def fail(ctx):
        return (await ctx.run("broken"))["output"]

    @session.workflow
    async def listen(ctx):
        return await ctx.wait_signal("shipped")

    @session.workflow
    async def long(ctx):
        await ctx.run("sleep")
"""


class ServerProcess:
    """`nerve serve` in a folder of its own, as on another machine.

    `program` is the arguments of Python that execute the command line of another version; `files` are texts
    by their names in the folder.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        engine: str | None = None,
        program: Sequence[str] = (),
        config: dict[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir()
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "work.py").write_text(WORKFLOW)
        if config is not None:
            (folder / ".nerve").mkdir(exist_ok=True)
            (folder / ".nerve/config.json").write_text(json.dumps(config))
        arguments = ["serve", "--port", "0", "--json", "--with", "work.py"]
        variables = {"NERVE_STORE": url, **({"NERVE_ENGINE": engine} if engine else {})}
        self.log = folder / "log"
        self.process: Process | subprocess.Popen[str]
        with self.log.open("w") as log:
            if program:
                self.process = subprocess.Popen(
                    [sys.executable, *program, *arguments],
                    cwd=folder,
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            else:
                self.process = Process(*arguments, cwd=folder, stderr=log, **variables)

    def wait_ready(self) -> dict[str, Any]:
        """Return what the server prints when it serves."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        ready: dict[str, Any] = json.loads(line)
        return ready

    def wait_until_owner(self) -> None:
        """Return when the server has taken the session over."""
        self.wait_for_log("This server executes the runs now")

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text(), self.log)

    def client(self) -> Client:
        client = Client.of_project(self.folder)
        assert client is not None
        return client

    def http(self, scope: Scope, token: str | None = None) -> httpx2.AsyncClient:
        """Return a client over TCP with the token of a scope, or with another one."""
        places = ProjectPaths.of(self.folder)
        token = token or token_file(places.private, scope).read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        url = json.loads(places.server.read_text())["url"]
        return httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False)

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
