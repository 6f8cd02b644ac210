"""The rows of an attempt at a leaf follow the first rows of its run."""

import asyncio
from contextlib import closing

from nerve.engine.temporal.leaf_rows import LeafRows
from nerve.store.port import Append, EventRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection, StepAttempt
from nerve.testing.store_contract import run_row


async def test_an_attempt_begins_when_the_start_of_its_run_is_written(postgresql_url: str) -> None:
    # Leaves that begin together carry no rows: the start of their run is on its way with a body worker.
    start = Append("r", 0, [EventRow(1, 1.0, "workflow_started", "", None, "{}")], run_row("r"))
    with (
        closing(PostgresProjection(postgresql_url, "default", "temporal://test")) as projection,
        closing(PostgresStore(postgresql_url, None)) as store,
    ):
        rows = LeafRows(projection, "r", StepAttempt("/a", 1, 1), lambda: None)

        async def execute() -> None:
            await rows.begin()
            rows.add("working", {})
            await rows.flush()

        leaf = asyncio.ensure_future(execute())
        done, _ = await asyncio.wait([leaf], timeout=0.5)
        assert not done
        assert store.events("r") == []
        await asyncio.to_thread(projection.append, "r", [start])
        await asyncio.wait_for(leaf, 30)
        assert [row.type for row in store.events("r")] == ["workflow_started", "working"]
        await rows.close()
