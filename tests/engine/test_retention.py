"""Old runs are deleted and old output is emptied, but nothing that is still needed."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.api import Api
from nerve.core.json_codec import encode_json
from nerve.engine.retention import DeletionTotals, delete_expired_runs
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, RunRow, Store
from nerve.store.sqlite import SqliteStore

pytestmark = pytest.mark.local("deletes rows of the store")

NOW = 2_000_000_000.0
DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, file: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(file)
    yield store
    store.close()


def add(
    store: Store,
    run: str,
    state: str = "completed",
    days: float = 10,
    parent: str | None = None,
    events: int = 3,
    key: str | None = None,
) -> None:
    """A run that ended some days ago."""
    at = NOW - days * DAY
    rows = [
        EventRow(n, at, "output_chunk", "/a", None, encode_json({"text": "x"})) for n in range(1, events + 1)
    ]
    ended = at if state in ("completed", "failed", "cancelled") else None
    store.append([Append(run, 0, rows, RunRow(run, "default", "w", state, at, ended, key, parent))])


def remaining_runs(store: Store) -> set[str]:
    return {row.run for row in store.runs()}


async def test_a_dry_run_reports_what_is_deleted_afterwards(store: Store) -> None:
    add(store, "old", key="k")
    add(store, "young", days=1)
    for state in ("failed", "cancelled"):
        add(store, state, state)
    totals = await delete_expired_runs(store, NOW - 7 * DAY)
    assert totals == DeletionTotals(3, 9, 9 * len('{"text":"x"}'))
    assert len(remaining_runs(store)) == 4
    assert await delete_expired_runs(store, NOW - 7 * DAY, dry_run=False) == totals
    assert remaining_runs(store) == {"young"}
    assert store.events("old") == []
    assert store.run_by_key("default", "k") is None
    assert await delete_expired_runs(store, NOW - 7 * DAY, dry_run=False) == DeletionTotals()


async def test_open_runs_and_their_relatives_stay(store: Store) -> None:
    for state in ("running", "waiting", "paused", "held", "pending"):
        add(store, state, state, days=100)
        add(store, f"{state}-child", parent=state)
        add(store, f"{state}-grandchild", parent=f"{state}-child")
    add(store, "young", days=1)
    add(store, "young-child", parent="young")
    before = remaining_runs(store)
    assert (await delete_expired_runs(store, NOW - 7 * DAY, dry_run=False)).runs == 0
    assert remaining_runs(store) == before
    add(store, "done")
    add(store, "done-child", parent="done")
    add(store, "orphan", parent="nobody")
    assert (await delete_expired_runs(store, NOW - 7 * DAY, dry_run=False)).runs == 3
    assert remaining_runs(store) == before


async def test_busy_runs_and_other_sessions_stay(store: Store) -> None:
    add(store, "a")
    add(store, "b")
    assert (await delete_expired_runs(store, NOW, dry_run=False, session="other")).runs == 0
    assert (await delete_expired_runs(store, NOW, dry_run=False, is_busy=lambda run: run == "a")).runs == 1
    assert remaining_runs(store) == {"a"}


async def test_old_output_is_emptied_and_its_journal_stays_valid(store: Store) -> None:
    add(store, "open", "waiting", events=5)
    add(store, "young", days=1)
    assert await delete_expired_runs(store, 0, chunks_older_than=NOW - 7 * DAY) == DeletionTotals(
        chunks=5, chunk_bytes=60
    )
    assert store.events("open")[0].data != "{}"
    totals = await delete_expired_runs(store, 0, dry_run=False, chunks_older_than=NOW - 7 * DAY)
    assert totals.chunks == 5
    assert [row.data for row in store.events("open")] == ["{}"] * 5
    assert [row.data for row in store.events("young")] == ['{"text":"x"}'] * 3
    assert (await delete_expired_runs(store, 0, dry_run=False, chunks_older_than=NOW - 7 * DAY)).chunks == 0


async def test_a_run_resumes_after_its_output_was_emptied(file: Path) -> None:
    def opened() -> Session:
        session = Session(store=file)

        @session.node
        async def talk(context: Any) -> str:
            context.emit("output_chunk", {"stream": "assistant", "text": "hello"})
            return "said"

        @session.workflow
        async def chat(ctx: Any) -> list[Any]:
            return [(await ctx.run("talk")).output, await ctx.gate("And?")]

        return session

    async with opened() as session:
        run = await Api(session).start(workflow="chat", wait=True)
        totals = await delete_expired_runs(
            session.engine.store, 0, dry_run=False, chunks_older_than=time.time() + 1
        )
        assert totals.chunks == 1
    async with opened() as session:
        await session.recover()
        api = Api(session)
        await api.answer(run=run.run_id, answer="well")
        assert await session.get_workflow_run(run.run_id).wait() == ["said", "well"]  # type: ignore[union-attr]
        assert [
            e.data for e in (await api.events(run=run.run_id)).events if e.event_type == "output_chunk"
        ] == [{}]


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.full)])
async def test_many_runs_are_deleted_while_others_continue(file: Path, count: int) -> None:
    async with Session(store=file) as session:
        store = session.engine.store
        for n in range(0, count, 100):
            for m in range(n, min(n + 100, count)):
                add(store, f"old-{m:05}")

        @session.workflow
        async def quick(ctx: Any) -> int:
            return int(ctx.input)

        collecting = asyncio.ensure_future(delete_expired_runs(store, NOW - DAY, dry_run=False))
        slowest, number = 0.0, 0
        while not collecting.done() or number == 0:
            began = time.perf_counter()
            assert await (await session.start("quick", number)).wait() == number
            slowest, number = max(slowest, time.perf_counter() - began), number + 1
        assert (await collecting).runs == count
        assert slowest < 2.0  # a loaded machine; the benchmark measures the actual figure
        assert len(store.runs()) == number


async def test_a_run_that_is_deleted_concurrently_is_not_forked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def short(ctx: Any) -> str:
            return "done"

        run = await session.start("short")
        await run.wait()
        store = session.engine.store
        find = store.run

        def deleting(name: str) -> RunRow | None:
            row = find(name)
            store.delete_runs([name])
            return row

        with monkeypatch.context() as patched:
            patched.setattr(store, "run", deleting)
            with pytest.raises(ValueError, match="not found"):
                await session.fork(run.run_id)
