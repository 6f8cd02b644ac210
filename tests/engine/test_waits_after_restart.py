"""Answering the gates of a run after a restart reads its journal a fixed number of times."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nerve import FunctionNode, Session
from nerve.journal import index
from nerve.store.port import EventRow
from nerve.store.sqlite import SqliteStore

pytestmark = pytest.mark.local("looks at executors")


class CountingStore(SqliteStore):
    """Counts the events read."""

    read = 0

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        rows = super().events(run, after, limit)
        self.read += len(rows)
        return rows


def project(store: SqliteStore) -> Session:
    session = Session(store=store)

    @session.workflow
    async def gates(ctx: Any) -> list[str]:
        asked = (ctx.gate(f"Gate {number}?") for number in range(ctx.input))
        return list(await asyncio.gather(*asked))

    return session


async def read_to_answer(file: Path, number: int, is_paused: bool) -> int:
    """Return the number of events read to recover a run and to answer all its gates."""
    async with project(SqliteStore(file)) as session:
        run = await session.start("gates", number)
        while len(run.pending_gates) < number:
            await run.wait_for_change()
        if is_paused:
            await run.pause()
    async with project(store := CountingStore(file)) as session:
        [run] = await session.recover()
        gates = run.pending_gates
        await asyncio.gather(*(run.answer(str(at), gate.gate_id) for at, gate in enumerate(gates)))
        if is_paused:
            await run.resume()
        assert await run.wait() == [str(at) for at in range(number)]
        return store.read


@pytest.mark.parametrize("is_paused", [False, True], ids=["waiting", "paused"])
async def test_four_times_the_gates_cost_about_four_times_the_reads(tmp_path: Path, is_paused: bool) -> None:
    small, large = [
        await read_to_answer(tmp_path / f"{number}.db", number, is_paused) for number in (40, 160)
    ]
    assert large < 6 * small


async def test_a_restart_and_an_answer_decode_each_event_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with project(SqliteStore(tmp_path / "nerve.db")) as session:
        run = await session.start("gates", 1)
        await run.next_gate()
    decoded: list[int] = []
    read_row = index.read_row
    monkeypatch.setattr(index, "read_row", lambda row: (decoded.append(row.seq), read_row(row))[1])
    async with project(SqliteStore(tmp_path / "nerve.db")) as session:
        [run] = await session.recover()
        stored = [event.seq for event in run.events]
        await run.answer("yes")
        assert decoded == stored
        assert await run.wait() == ["yes"]


def family(store: SqliteStore, is_running: asyncio.Event, cleaned: list[str]) -> Session:
    session = Session(store=store)

    async def slow(context: Any) -> None:
        is_running.set()
        await asyncio.Event().wait()

    FunctionNode("slow", session, slow)

    @session.workflow
    async def child(ctx: Any) -> None:
        await ctx.gate("Child?")
        await ctx.run("slow")

    @session.workflow
    async def parent(ctx: Any) -> None:
        try:
            await asyncio.gather(ctx.gate("Parent?"), ctx.run_workflow("child"))
        finally:
            cleaned.append(ctx.run_id)

    return session


@pytest.mark.parametrize("is_held", [False, True], ids=["paused", "held"])
async def test_a_stop_after_an_answer_ends_the_children_and_runs_the_cleanup_of_a_paused_run(
    tmp_path: Path, is_held: bool
) -> None:
    is_running, cleaned = asyncio.Event(), list[str]()
    async with family(SqliteStore(tmp_path / "nerve.db"), is_running, cleaned) as session:
        run = await session.start("parent")
        while len(run.pending_gates) < 2:
            await run.wait_for_change()
        await run.pause()
    cleaned.clear()
    async with family(SqliteStore(tmp_path / "nerve.db"), is_running, cleaned) as session:
        run = next(run for run in await session.recover() if run.workflow_id == "parent")
        (child,) = run.open_children.values()
        await child.resume()
        await child.answer("yes")
        await is_running.wait()
        if is_held:
            await session.engine.commands.hold(run, "test", "held by the test")
        await run.answer("yes", "/gate")
        assert await run.stop("enough") == ["/child/slow"]
        assert [event.event_type for event in run.events][-1] == "workflow_cancelled"
        assert cleaned == ([] if is_held else [run.run_id])
