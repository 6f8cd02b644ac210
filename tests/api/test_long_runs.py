"""Long runs: a response reads a bounded part of the journal, and the rest is requested page by page."""

import time
from pathlib import Path
from typing import Any

import pytest

from api.support import with_workflows
from nerve import Session
from nerve.api import Api, queries, responses
from nerve.store.port import Append, EventRow


async def long_run(file: Path, steps: int) -> str:
    """Store a finished run with that many completed steps; return its id."""
    async with Session(store=file) as session:
        api, store = with_workflows(session), session.engine.store
        run_id = (await api.start(workflow="hello", wait=True)).run_id
        run_row, (start, end) = store.run(run_id), store.events(run_id)
        assert run_row is not None
        journal, data = (
            [start],
            '{"success":true,"result":{"success":true,"output":1,"error":null,"attributes":{}}}',
        )
        for number in range(1, steps + 1):
            path, seq = f"/work[{number}]", 2 * number
            journal.append(EventRow(seq, start.at, "node_started", path, None, '{"input":null,"hash":"x"}'))
            journal.append(EventRow(seq + 1, start.at, "node_completed", path, path, data))
        journal.append(end._replace(seq=len(journal) + 1))
        long_id = f"{run_id[:-4]}long"
        for first in range(0, len(journal), 10_000):
            part = Append(long_id, first, journal[first : first + 10_000], run_row._replace(run=long_id))
            assert store.append([part]) == [None]
        return long_id


def count_rows_read(api: Api) -> list[int]:
    """Record how many events each read of a journal returns."""
    store, counts = api.session.engine.store, list[int]()
    read = store.events

    def read_and_count(*arguments: Any, **options: Any) -> list[EventRow]:
        rows = read(*arguments, **options)
        counts.append(len(rows))
        return rows

    store.events = read_and_count  # type: ignore[method-assign]
    return counts


async def test_a_long_run_is_shown_with_its_newest_steps_and_paged(file: Path) -> None:
    run_id = await long_run(file, 3000)
    async with Session(store=file) as session:
        api = with_workflows(session)
        counts = count_rows_read(api)
        shown = await api.run(run=run_id)
        assert max(counts) <= responses.PAGE_EVENTS
        assert (shown.run_id, shown.state, shown.result, shown.last_seq) == (
            run_id,
            "completed",
            "hello None",
            6002,
        )
        assert (shown.tree[-1].path, shown.tree[-1].state) == ("/work[3000]", "completed")
        assert shown.left_out == ["models", "usage"]
        paths = [node.path for node in shown.tree]
        while shown.next is not None:
            counts.clear()
            shown = await api.run(run=run_id, before=shown.next)
            assert max(counts) <= responses.PAGE_EVENTS
            paths = [node.path for node in shown.tree] + paths
        assert list(dict.fromkeys(paths)) == [f"/work[{number}]" for number in range(1, 3001)]


async def test_a_run_of_a_thousand_steps_is_shown_whole(file: Path) -> None:
    run_id = await long_run(file, 1000)
    async with Session(store=file) as session:
        shown = await with_workflows(session).run(run=run_id)
        assert [node.path for node in shown.tree] == [f"/work[{number}]" for number in range(1, 1001)]
        assert (shown.next, shown.left_out) == (None, [])


async def test_a_list_and_a_page_of_events_read_little_of_a_long_run(file: Path) -> None:
    run_id = await long_run(file, 3000)
    async with Session(store=file) as session:
        api = with_workflows(session)
        counts = count_rows_read(api)
        assert run_id in [run.run_id for run in (await api.runs()).runs]
        page = await api.events(run=run_id, after=5000, limit=10)
        assert [event.seq for event in page.events] == list(range(5001, 5011))
        assert page.more
        assert max(counts) <= responses.PAGE_EVENTS


async def test_health_lists_a_limited_number_of_held_runs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_LISTED_HELD_RUNS", 2)
    ids = [(await api.start(workflow="ask", wait=True)).run_id for _ in range(3)]
    engine = api.session.engine
    for run_id in ids:
        row = engine.store.run(run_id)
        assert row is not None
        await engine.commands.hold(engine.run_handle(row), "quarantine", "look")
    health = await api.health()
    assert set(health.held) == set(ids[1:])
    assert (health.status, health.runs["held"]) == ("degraded", 3)


@pytest.mark.full
async def test_a_run_with_100_000_steps_is_shown_in_100_ms_of_processor_time(file: Path) -> None:
    run_id = await long_run(file, 100_000)
    async with Session(store=file) as session:
        api = with_workflows(session)
        await api.runs()
        costs = []
        for _ in range(5):
            began = time.process_time()
            shown = await api.run(run=run_id)
            assert shown.model_dump_json()
            costs.append(time.process_time() - began)
        assert min(costs) <= 0.1, costs
