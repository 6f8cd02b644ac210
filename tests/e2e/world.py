"""A project, and `nerve serve` of it as a process of its own: to be asked, stopped, and killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect, unix_connect

from nerve_processes import Process

TESTS = Path(__file__).parents[1]
FLOWS = Path(__file__).with_name("flows.py")
CANARY = "canary-4f1d9b7e20c85a63"
"""In the environment of the server: whoever writes that down writes down secrets."""
LOUDEST = 20.0
"""Seconds in which a server must be ready, on a machine that does other things too."""


@dataclass
class Acked:
    """What was acknowledged, and must therefore be in the journal."""

    starts: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    seen: list[tuple[str, int]] = field(default_factory=list)
    """Runs and numbers of events that somebody has seen."""

    def add(self, path: str, told: dict[str, Any]) -> None:
        if path == "/api/runs":
            self.starts.append(told["run_id"])
        elif path == "/api/answers":
            self.answers.append(told)


@dataclass
class World:
    """A project, its server, and what that has acknowledged."""

    folder: Path
    otherwise: dict[str, Any] = field(default_factory=dict)
    """What is to be set to another value in the server, by its full name."""
    watched: Path | None = None
    under: tuple[str, ...] = ()
    """A command that runs the server, if it is not to be run as it is."""
    acked: Acked = field(default_factory=Acked)
    process: Process | subprocess.Popen[str] | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def port(self) -> int:
        return int(self.about["url"].rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def token(self, scope: str = "admin") -> str:
        return (self.folder / f".nerve/private/{scope}.token").read_text().strip()

    def start(self, *options: str, port: int = 0) -> float:
        """Serve; gives the seconds until it was ready."""
        (self.folder / ".nerve").mkdir(exist_ok=True)
        arguments = ["serve", f"--port={port}", "--json", "--with", str(FLOWS), *options]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "NERVE_TEST_OTHERWISE": json.dumps(self.otherwise),
            "NERVE_TEST_WATCHED": str(self.watched or ""),
            "CANARY_API_KEY": CANARY,
        }
        began = time.monotonic()
        with self.log.open("ab") as log:
            if self.under:
                self.process = subprocess.Popen(
                    [*self.under, sys.executable, "-W", "error", "-m", "nerve", *arguments],
                    cwd=self.folder,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            else:
                self.process = Process(*arguments, cwd=self.folder, stderr=log, environment=environment)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline() or "{}")
        if "url" not in told:
            self.kill()
            raise AssertionError(f"{told} {self.log.read_text()[-2000:]}")
        self.about = told
        return time.monotonic() - began

    def kill(self) -> None:
        self._ended(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop; gives its exit code."""
        return self._ended(signal.SIGTERM)

    def _ended(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(LOUDEST)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def rss(self) -> float:
        """Megabytes of memory that the server has in use."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu(self) -> float:
        """Seconds that the server has computed."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    # -- those who ask -------------------------------------------------------------------------

    def client(self, scope: str | None = "admin", over: str = "tcp", at_once: int = 100) -> Asking:
        """A client over TCP, or over the Unix socket, which notes what was acknowledged."""
        headers = {"authorization": f"Bearer {self.token(scope)}"} if scope else {}
        limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        unix = self.about["socket"] if over == "unix" else None
        http = httpx2.AsyncClient(
            base_url="http://localhost" if unix else self.about["url"],
            headers=headers,
            timeout=120,
            transport=httpx2.AsyncHTTPTransport(uds=unix, limits=limits),
        )
        return Asking(http, self.acked)

    @contextlib.asynccontextmanager
    async def unix_commands(self, scope: str = "admin") -> AsyncIterator[UnixCommands]:
        """Operations over a WebSocket on the Unix socket."""
        headers = {"authorization": f"Bearer {self.token(scope)}"}
        async with unix_connect(
            self.about["socket"], "ws://localhost/ws", additional_headers=headers
        ) as socket:
            yield UnixCommands(socket, self.acked)

    def dial(self, scope: str | None = "admin", **options: Any) -> connect:
        headers = {"authorization": f"Bearer {self.token(scope)}"} if scope else {}
        given = headers | options.pop("headers", {})
        return connect(f"ws://127.0.0.1:{self.port}/ws", additional_headers=given, proxy=None, **options)

    async def raw(self, limit: int = 2**20) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=limit)

    def head(self, line: str, *more: str, token: str | None = "admin") -> bytes:
        """The beginning of a request, by hand."""
        said = [line, f"Host: 127.0.0.1:{self.port}", *more]
        if token is not None:
            said.append(f"Authorization: Bearer {self.token(token)}")
        return "\r\n".join([*said, "", ""]).encode()


@dataclass
class Asking:
    """A client of HTTP."""

    http: httpx2.AsyncClient
    acked: Acked

    async def __aenter__(self) -> Asking:
        await self.http.__aenter__()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.http.aclose()

    async def post(self, path: str, key: str | None = None, **given: Any) -> httpx2.Response:
        headers = {"idempotency-key": key} if key is not None else {}
        reply = await self.http.post(path, json=given, headers=headers)
        if reply.status_code == 200:
            self.acked.add(path, reply.json())
        return reply

    async def get(self, path: str, **params: Any) -> Any:
        reply = await self.http.get(path, params=params)
        assert reply.status_code == 200, (reply.status_code, reply.text)
        return reply.json()

    async def start(self, workflow: str, key: str | None = None, **given: Any) -> dict[str, Any]:
        reply = await self.post("/api/runs", key, workflow=workflow, **given)
        assert reply.status_code == 200, (reply.status_code, reply.text)
        found: dict[str, Any] = reply.json()
        return found

    async def answer(
        self, run: dict[str, Any], answer: Any = "yes", key: str | None = None
    ) -> httpx2.Response:
        gate = run["gates"][0]["gate_id"]
        return await self.post("/api/answers", key, run=run["run_id"], gate=gate, answer=answer)

    async def run(self, run: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"/api/runs/{run['run_id']}")
        return found

    async def ended(self, runs: Iterable[dict[str, Any]], within: float = 60) -> list[Any]:
        """The results of runs, when all have ended."""
        left, results = {run["run_id"] for run in runs}, {}
        order = [run["run_id"] for run in runs]
        async with asyncio.timeout(within):
            while left:
                for run_id in list(left):
                    told = await self.get(f"/api/runs/{run_id}")
                    if told["ended_at"] is not None:
                        results[run_id] = told["result"]
                        left.discard(run_id)
                await asyncio.sleep(0.02)
        return [results[run_id] for run_id in order]


@dataclass
class UnixCommands:
    """One WebSocket on the Unix socket, with one operation at a time."""

    socket: ClientConnection
    acked: Acked

    async def answer(
        self, run: dict[str, Any], answer: Any = "yes", key: str | None = None
    ) -> dict[str, Any]:
        gate = run["gates"][0]["gate_id"]
        keys = {} if key is None else {"key": key}
        told = await ask(self.socket, "answer", run=run["run_id"], gate=gate, answer=answer, **keys)
        if "result" not in told:
            return {"success": False, **told["error"]}
        self.acked.answers.append({"run_id": run["run_id"], "gate_id": gate, "answer": answer})
        return {"success": True, "result": told["result"]}


async def ask(socket: ClientConnection, op: str, id: Any = 1, **args: Any) -> Any:
    """One operation over a WebSocket on which nothing else is said."""
    await socket.send(json.dumps({"id": id, "op": op, "args": args}))
    return json.loads(await socket.recv())


async def at_most(number: int, work: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Do all, so many at a time."""
    room = asyncio.Semaphore(number)

    async def one(each: Callable[[], Awaitable[Any]]) -> Any:
        async with room:
            return await each()

    return await asyncio.gather(*(one(each) for each in work))


async def until(seen: Callable[[], Any], seconds: float = 30) -> None:
    """Return when something is so."""
    async with asyncio.timeout(seconds):
        while not seen():  # noqa: ASYNC110 - what is looked at tells nobody
            await asyncio.sleep(0.01)


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def tell(**figures: float) -> None:
    """Say what was measured; shown by `pytest -rP`, and where a test fails."""
    sys.stdout.write(json.dumps({name: round(value, 3) for name, value in figures.items()}) + "\n")
