"""Runs of a cluster are deleted from the database and from Temporal when they have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.temporal.api_servers import open_servers, wait_for_end, wait_for_gate
from nerve import Session, WorkflowContext
from nerve.api import Api, ApiError
from nerve.engine.temporal.client import connect_client
from nerve.project.engine_url import parse_engine_url

LARGE = "x" * 200_000
TABLES = ("runs", "events", "event_sources", "payloads", "payload_uses", "waits", "step_attempts")


def register(session: Session) -> None:
    @session.workflow
    async def ask(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Continue?") + LARGE[:3]

    @session.workflow
    async def outer(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("ask", ctx.input)

    @session.workflow
    async def count(ctx: WorkflowContext) -> Any:
        answer = await ctx.gate("Again?")
        if answer == "yes":
            ctx.continue_as_new(ctx.input)
        return answer


@pytest.fixture
async def server(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with open_servers(temporal_url, postgresql_url, tmp_path, register, count=1) as [api]:
        yield api


async def answer(api: Api, run_id: str, value: str) -> None:
    gate = await wait_for_gate(api, run_id)
    await api.answer(run=gate.run_id, gate=gate.gate_id, answer=value)


def count_rows(url: str) -> dict[str, int]:
    """Return the number of rows of each table that has some."""
    with psycopg.connect(url) as db:
        counts = {table: db.execute(f"SELECT count(*) FROM nerve.{table}").fetchone() for table in TABLES}
    return {table: row[0] for table, row in counts.items() if row and row[0]}


async def until_no_histories(temporal_url: str) -> None:
    client = await connect_client(parse_engine_url(temporal_url))
    deadline = time.monotonic() + 30
    while [each async for each in client.list_workflows()]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_a_run_is_deleted_with_its_child_runs_large_values_and_histories(
    server: Api, temporal_url: str, postgresql_url: str
) -> None:
    run = await server.start(workflow="outer", input=LARGE, key="k")
    with pytest.raises(ApiError, match="is running"):
        await server.delete(run=run.run_id)
    await answer(server, run.run_id, "yes")
    ended = await wait_for_end(server, run.run_id)
    assert ended.result == "yesxxx"
    assert count_rows(postgresql_url)["payloads"] > 0
    assert (await server.delete(run=run.run_id)).runs == 2
    assert count_rows(postgresql_url) == {}
    await until_no_histories(temporal_url)
    # The key is free.
    again = await server.start(workflow="outer", input=1, key="k")
    await answer(server, again.run_id, "no")
    assert (await wait_for_end(server, again.run_id)).result == "noxxx"


async def test_the_first_run_of_a_chain_is_kept_while_a_later_one_is_open(
    server: Api, postgresql_url: str
) -> None:
    run = await server.start(workflow="count", input=LARGE)
    await answer(server, run.run_id, "yes")
    await wait_for_end(server, run.run_id)
    with pytest.raises(ApiError, match="about to end"):
        await server.delete(run=run.run_id)
    with psycopg.connect(postgresql_url) as db:
        db.execute("UPDATE nerve.runs SET ended = 1, started = 0 WHERE ended IS NOT NULL")
    assert (await server.collect(older_than=1, dry_run=False)).runs == 0
    current = (await server.runs(state=["waiting", "running"])).runs[0].run_id
    await answer(server, current, "no")
    assert (await wait_for_end(server, current)).result == "no"
    assert (await server.collect(older_than=1, dry_run=False)).runs == 1
    assert [row.run_id for row in (await server.runs()).runs] == [current]
