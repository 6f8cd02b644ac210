"""The environment of generated specs: their leaves, a store with snapshots, and automatic answers."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nerve import FunctionNode, Session
from nerve.agents.conversation import INTERRUPTED_PROMPT
from nerve.journal.events import SignalWaiting
from nerve.journal.index import JournalIndex
from nerve.store.port import Append, EventRow, Store
from nerve.store.sqlite import SqliteStore
from nerve.testing import ScriptedProvider

CHILD = {
    "name": "child",
    "inputs": {"times": {"type": "integer"}, "more": {"type": "integer", "default": 3}},
    "body": {
        "kind": "sequence",
        "id": "all",
        "steps": [
            {
                "kind": "loop",
                "id": "turns",
                "times": "inputs.times",
                "body": {"kind": "call", "id": "inner", "target": "work", "input": "{{ inputs.more }}"},
            },
            {"kind": "gate", "id": "ask", "prompt": "Child?"},
        ],
    },
}


class World:
    """The effects of the leaves of a workflow, and the event loop turns that each takes."""

    def __init__(self, delays: Sequence[int]) -> None:
        self.delays = delays
        self.done: list[tuple[str, str]] = []
        self.tried: set[tuple[str, str]] = set()

    async def work(self, context: Any) -> Any:
        self.done.append((context.run_id, context.path))
        for _ in range(self.delays[len(self.done) % len(self.delays)]):
            await asyncio.sleep(0)
        return number(context.input)

    async def fail(self, context: Any) -> Any:
        await self.work(context)
        raise ValueError(f"no {number(context.input)}")

    async def flaky(self, context: Any) -> Any:
        place = (context.run_id, context.path)
        if place not in self.tried:
            self.tried.add(place)
            raise OSError("not yet")
        return await self.work(context)

    async def never(self, context: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def answer(self, asked: Any) -> Any:
        for _ in range(self.delays[0]):
            await asyncio.sleep(0)
        # An agent that is asked again after a crash answers the task, not the note before it.
        return f"said {number(asked.prompt.removeprefix(INTERRUPTED_PROMPT))}"


def number(value: Any) -> int:
    """A small number derived from a whole value."""
    return sum(json.dumps(value, sort_keys=True).encode()) % 7


class Filmed(SqliteStore):
    """Keeps a copy of its file after every commit, as a crash at that time would leave it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "nerve.db")
        self.takes: list[Path] = []

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> Any:
        outcome = super().append(batch, patience)
        take = self.file.parent / f"take-{len(self.takes)}.db"
        for ending in ("", "-wal"):
            source = Path(f"{self.file}{ending}")
            if source.exists():
                shutil.copyfile(source, f"{take}{ending}")
        self.takes.append(take)
        return outcome


def session_on(store: Store, world: World, project: Path, name: str = "law") -> Session:
    """A session that knows the leaves and the child, but not the workflow itself."""
    session = Session(name, store, providers={"claude": ScriptedProvider(world.answer)}, project=project)
    for name in ("work", "fail", "flaky", "never"):
        FunctionNode(name, session, getattr(world, name))
    session.load(json.dumps(CHILD), "json")
    return session


async def finish(session: Session, run: Any) -> tuple[str, Any]:
    """Answer every open gate, send every awaited signal, and return the outcome of the run."""
    async with asyncio.timeout(60):
        waiting = asyncio.ensure_future(run.wait())
        while not waiting.done():
            for gate in run.pending_gates:
                await run.answer(f"{gate.prompt} yes", gate.gate_id)
            for name in wanted(session.engine.store.events(run.run_id)):
                await session.signal(name, key=run.label, value=name)
            await asyncio.sleep(0)
    if (error := waiting.exception()) is not None:
        return run.state.value, getattr(error, "error_type", repr(error))
    return run.state.value, waiting.result()


def wanted(rows: list[EventRow]) -> list[str]:
    """The awaited signals from outside."""
    requests = [recorded.event for recorded in JournalIndex(rows).open_waits.values()]
    patterns = [request.patterns or {} for request in requests if isinstance(request, SignalWaiting)]
    return [named["came"][1] for named in patterns if "came" in named]


def settled(rows: list[EventRow]) -> set[str]:
    return {row.path for row in rows if row.settles and row.settles != "/"}
