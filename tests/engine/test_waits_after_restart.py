"""Answering the gates of a run after a restart reads its journal a fixed number of times."""

import asyncio
from pathlib import Path
from typing import Any

from nerve import Session
from nerve.store.port import EventRow
from nerve.store.sqlite import SqliteStore


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


async def read_to_answer(file: Path, number: int) -> int:
    """Return the number of events read to answer all gates of a run after a restart."""
    async with project(SqliteStore(file)) as session:
        run = await session.start("gates", number)
        while len(run.pending_gates) < number:
            await run._wait_for_change()
    async with project(store := CountingStore(file)) as session:
        [run] = await session.recover()
        gates = run.pending_gates
        store.read = 0
        await asyncio.gather(*(run.answer(str(at), gate.gate_id) for at, gate in enumerate(gates)))
        assert await run.wait() == [str(at) for at in range(number)]
        return store.read


async def test_four_times_the_gates_cost_about_four_times_the_reads(tmp_path: Path) -> None:
    small, large = [await read_to_answer(tmp_path / f"{number}.db", number) for number in (40, 160)]
    assert large < 6 * small
