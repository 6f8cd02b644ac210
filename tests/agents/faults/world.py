"""A stub API, one engine at a time, and a process that kills them; collects every violated invariant."""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import nerve
from agents.stubs import anthropic, chat, openai
from agents.stubs.server import Heard, Reply, StubServer
from process.seen import TAG, children, pids, read, stat, tagged

MARK = re.compile(r"<(\d+/\w+/\d+)>")
PACE = 0.01
"""Seconds between two events of an answer."""
AT_WORK = 0.5
"""Seconds after a request in which a turn counts as active."""
GONE = 5.0
"""Seconds until everything that belonged to a killed process must be gone: 3, more on a busy machine."""
TESTS = Path(__file__).parent.parent.parent


@dataclass(slots=True)
class Request:
    """A request to the API: its step, its thread and its time."""

    step: str
    thread: str
    before: list[str]
    """The steps in the conversation so far."""
    began: float
    beside: list[str] = field(default_factory=list)
    """Remaining processes of a dead engine when a conversation was resumed."""
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class Api:
    """How to read a stub: the user's messages, and their thread."""

    stub: type[StubServer]
    said: Callable[[Any], list[str]]
    thread: Callable[[Any], str]
    tokens: int
    """Input tokens of one answer."""


def claudes_session(body: Any) -> str:
    return str(json.loads(body["metadata"]["user_id"])["session_id"])


APIS = {
    "claude": Api(
        anthropic.AnthropicStub, lambda b: anthropic.conversation(b["messages"])[0], claudes_session, 100
    ),
    "codex": Api(
        openai.OpenAIStub,
        lambda b: openai.conversation(b["input"])[0],
        lambda b: str(b["prompt_cache_key"]),
        100,
    ),
    "acp": Api(chat.ChatStub, lambda b: chat.conversation(b["messages"])[0], lambda b: str(b["user"]), 100),
    "command": Api(chat.ChatStub, lambda b: chat.conversation(b["messages"])[0], lambda b: "", 0),
}


def watched(api: Api) -> Any:
    """Return the stub, at the pace of a model, recording its requests."""

    class Watched(api.stub):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.requests: list[Request] = []
            self.leftovers: Callable[[int], list[str]] = lambda _: []
            super().__init__()

        def answer(self, heard: Heard, reply: Reply) -> None:
            generation, _, path = heard.path.lstrip("/").partition("/")
            heard = replace(heard, path=f"/{path}")
            steps = steps_of(heard.body, api)
            if not steps:
                return super().answer(heard, reply)
            request = Request(steps[-1], api.thread(heard.body), steps[:-1], time.time())
            if any(request.thread == earlier.thread for earlier in self.requests):
                request.beside = self.leftovers(int(generation))
            self.requests.append(request)
            pace(reply)
            try:
                super().answer(heard, reply)
            finally:
                request.ended = time.time()

    return Watched()


def steps_of(body: Any, api: Api) -> list[str]:
    """Return the steps in the user's messages, in order."""
    if not isinstance(body, dict) or not ("messages" in body or "input" in body):
        return []
    return [mark for text in api.said(body) for mark in MARK.findall(text)[-1:]]


def pace(reply: Reply) -> None:
    """Send one word at a time, to notice when the client has disconnected."""
    event = reply.event

    def slowly(name: str | None, data: Any) -> None:
        if select.select([reply.connection], [], [], PACE)[0]:
            raise BrokenPipeError
        event(name, data)

    reply.event = slowly  # type: ignore[method-assign]


@dataclass(slots=True)
class World:
    folder: Path
    kind: str
    draw: random.Random
    stub: Any
    slowest: float = 0.0
    """Maximum seconds that anything killed was still running."""
    kills: Counter[str] = field(default_factory=Counter)
    at_work: int = 0
    """Kills while the API was answering an agent."""
    wrong: list[str] = field(default_factory=list)
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    generation: int = 0
    engine: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.stub.leftovers = self.leftovers

    # -- the engine --------------------------------------------------------------------------------

    def start(self) -> None:
        self.generation += 1
        settings = {
            "folder": str(self.folder),
            "kind": self.kind,
            "url": f"{self.stub.url}/{self.generation}",
            "tag": self.mark,
            "least": 2,
        }
        source = str(Path(nerve.__file__).parents[1])
        path = os.pathsep.join([source, str(TESTS)])
        with (self.folder / "engine.log").open("ab") as log:
            self.engine = subprocess.Popen(
                [sys.executable, "-m", "agents.faults.engine", json.dumps(settings)],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(self.folder / "home")},
                stdout=log,
                stderr=log,
            )

    @property
    def mark(self) -> str:
        """The tag of the agents of the current engine."""
        return f"{self.tag}-{self.generation}"

    @property
    def running(self) -> bool:
        return self.engine is not None and self.engine.poll() is None

    def finish(self, within: float) -> None:
        """Let the engine finish the open runs."""
        (self.folder / "enough").touch()
        if not self.running:
            self.start()
        assert self.engine is not None
        try:
            code = self.engine.wait(within)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"not finished within {within} s")
            self.close()
        else:
            if code:
                self.wrong.append(f"the engine ended with {code}: {self.log}")
        self.must_go([(pid, born(pid)) for pid, _ in self.agents()], "the end")

    def close(self) -> None:
        if self.engine is not None:
            self.engine.kill()
            self.engine.wait()

    @property
    def log(self) -> str:
        return (self.folder / "engine.log").read_text()[-3000:]

    # -- killing -----------------------------------------------------------------------------------

    def kill(self, most: float) -> None:
        """Kill something at a random moment, and check that everything that belonged to it ends."""
        if not self.running:
            self.wrong.append(f"the engine ended by itself: {self.log}")
            return
        what = self.draw.choice(("engine", "engine", "process", "tree"))
        self.wait_for_a_moment(most, started=what != "engine")
        self.at_work += any(not request.ended for request in self.stub.requests)
        if what == "engine":
            self.kill_engine()
        else:
            self.kill_agent(whole=what == "tree")
        self.kills[what] += 1

    def wait_for_a_moment(self, most: float, started: bool) -> None:
        """Wait for a moment, mostly during a turn, sometimes while engine or agents start."""
        if self.draw.random() < 0.6:
            heard, deadline = len(self.stub.requests), time.monotonic() + 20
            while len(self.stub.requests) == heard and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(self.draw.uniform(0, AT_WORK))
            return
        if started:
            self.until_agents()
        time.sleep(self.draw.uniform(0, most))

    def kill_engine(self) -> None:
        assert self.engine is not None
        old = self.mark
        self.engine.kill()
        self.engine.wait()
        left = [(pid, born(pid)) for pid in tagged(old)]
        self.start()
        self.must_go(left, "the engine")
        self.must_go([(pid, born(pid)) for pid in tagged(old)], "the engine, late")

    def kill_agent(self, whole: bool) -> None:
        processes = self.until_agents()
        if not processes:
            self.wrong.append("no agent within 20 s")
            return
        victim = self.draw.choice(processes)
        if whole:
            victim = root_of(victim, set(processes))
        tree = [(pid, born(pid)) for pid in descendants(victim)]
        for pid, since in reversed(tree) if whole else tree[:1]:
            if born(pid) == since:
                send_kill(pid)
        self.must_go(tree, "an agent")

    def until_agents(self) -> list[int]:
        deadline = time.monotonic() + 20
        while not (matches := tagged(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.005)
        return matches

    def must_go(self, processes: list[tuple[int, bytes]], whose: str) -> None:
        began = time.monotonic()
        while left := [pid for pid, since in processes if since and born(pid) == since]:
            if time.monotonic() > began + GONE:
                self.wrong.append(f"left behind by {whose}: {[read(pid, 'cmdline')[:80] for pid in left]}")
                break
            time.sleep(0.005)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def leftovers(self, generation: int) -> list[str]:
        """Return the agents of engines that were killed before that one started."""
        return [f"{pid} of {of}" for pid, of in self.agents() if of < generation and born(pid)]

    def agents(self) -> Iterator[tuple[int, int]]:
        """Yield every process of an agent, with the engine that started it."""
        wanted = re.compile(rf"(?:^|\0){TAG}={self.tag}-(\d+)\0".encode())
        for pid in pids():
            if matches := wanted.search(read(pid, "environ")):
                yield pid, int(matches[1])


def born(pid: int) -> bytes:
    """Return when a process started; empty if it is gone or a zombie."""
    fields = stat(pid)
    return fields[19] if len(fields) > 19 and fields[0] != b"Z" else b""


def descendants(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        pids += children(parent)
    return pids


def root_of(pid: int, among: set[int]) -> int:
    while (parent := int((stat(pid)[1:2] or [b"0"])[0])) in among:
        pid = parent
    return pid


def send_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
