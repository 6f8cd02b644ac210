"""A project whose server has a trigger of every kind, for tests that kill it or load it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from nerve.project.paths import ProjectPaths
from nerve.server.tokens import token_file
from nerve.store.sqlite import SqliteStore
from nerve.triggers.webhook_signatures import sign_request
from nerve_processes import Process

SECRET = "a secret for tests"
CODE = """
def register(session):
    @session.workflow
    async def source(ctx, number):
        return {"number": number}

    @session.workflow
    async def target(ctx, input):
        return input
"""
TRIGGERS: dict[str, dict[str, Any]] = {
    "tick": {"schedule": {"every": 1, "overlap": "allow", "catch_up": "1h"}, "input": "{{ time }}"},
    "hook": {"webhook": {"signature": "standard", "secret": {"file": "secret"}}, "input": "{{ body.n }}"},
    "file": {"files": {"paths": ["inbox/*.txt"], "debounce": 0.02}, "input": "{{ file.name }}"},
    "fact": {"fact": "(order ?n)", "input": "{{ captures.n }}"},
    "ended": {"run": {"workflow": "source"}, "input": "{{ run.result.number }}"},
}


def write_project(folder: Path) -> None:
    """Write the code, the secret and a trigger file of every kind."""
    (folder / ".nerve/triggers").mkdir(parents=True)
    (folder / "inbox").mkdir()
    (folder / "code.py").write_text(CODE)
    (folder / "secret").write_text(SECRET)
    for name, definition in TRIGGERS.items():
        text = json.dumps({"workflow": "target", **definition})
        (folder / f".nerve/triggers/{name}.json").write_text(text)


class TriggerServer:
    """`nerve serve` of the project; it is started again after each kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: Process | None = None
        self.url = ""

    def start(self) -> None:
        arguments = ["serve", "--port", "0", "--json", "--with", "code.py"]
        with (self.folder / "log").open("a") as log:
            self._process = Process(*arguments, cwd=self.folder, stderr=log, PYTHONPATH="")

    async def wait_ready(self) -> None:
        """Return when the server listens; AssertionError if it has ended."""
        process = self._process
        assert process is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, (self.folder / "log").read_text()[-2000:]
        self.url = json.loads(line)["url"]

    def kill(self) -> None:
        """End the server as a power cut does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.communicate()

    @property
    def headers(self) -> dict[str, str]:
        token = token_file(ProjectPaths.of(self.folder).private, "admin").read_text().strip()
        return {"authorization": f"Bearer {token}"}


class Sender:
    """Sends until the server has confirmed, as the senders of webhooks do; what it sent is counted."""

    def __init__(self, server: TriggerServer) -> None:
        self._server = server
        self._client = httpx2.AsyncClient(timeout=10, trust_env=False)
        self.confirmed: Counter[str] = Counter()
        self.is_ended = False

    async def send_all(self) -> None:
        """Send occurrences of every kind, one after the other, until told to end."""
        number = 0
        while not self.is_ended:
            number += 1
            await self._repeat(self._send_webhook, number)
            self.confirmed["hook"] = number
            await self._repeat(self._assert_fact, number)
            self.confirmed["fact"] = number
            await self._repeat(self._start_run, number)
            self.confirmed["ended"] = number
            part = self._server.folder / f"part-{number}"
            part.write_text("text")
            part.rename(self._server.folder / f"inbox/{number}.txt")
            self.confirmed["file"] = number
            await asyncio.sleep(0.01)
        await self._client.aclose()

    async def _repeat(self, send: Any, number: int) -> None:
        while True:
            try:
                response = await send(number)
                if response.status_code in (200, 202):
                    return
            except (httpx2.HTTPError, OSError):
                pass
            await asyncio.sleep(0.05)

    async def _send_webhook(self, number: int) -> httpx2.Response:
        body = json.dumps({"n": number}).encode()
        signed = sign_request("standard", SECRET, body, time.time(), f"d{number}")
        headers = {"content-type": "application/json", **signed}
        return await self._client.post(f"{self._server.url}/hooks/hook", content=body, headers=headers)

    async def _assert_fact(self, number: int) -> httpx2.Response:
        return await self._post("/api/facts", {"fact": f"(order {number})", "key": f"fact-{number}"})

    async def _start_run(self, number: int) -> httpx2.Response:
        body = {"workflow": "source", "input": number, "key": f"source-{number}"}
        return await self._post("/api/runs", body)

    async def _post(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        url = f"{self._server.url}{path}"
        return await self._client.post(url, json=body, headers=self._server.headers)


def read_starts(folder: Path) -> dict[str, list[str]]:
    """Return the occurrences that each trigger has started a run for, in order."""
    store = SqliteStore(ProjectPaths.of(folder).store)
    try:
        starts: dict[str, list[str]] = {}
        for row in store.runs(session="default", workflow="target"):
            name, _, occurrence = (row.key or "").removeprefix("trigger:").partition(":")
            starts.setdefault(name, []).append(occurrence)
        return starts
    finally:
        store.close()


def count_runs(folder: Path, workflow: str) -> int:
    store = SqliteStore(ProjectPaths.of(folder).store)
    try:
        return len(store.runs(session="default", workflow=workflow))
    finally:
        store.close()
