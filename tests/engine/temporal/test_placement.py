"""The leaves of a family run on one host, if its workers say so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engine.temporal.memory_projection import MemoryProjection
from engine.temporal.temporal_runs import TemporalRuns, connect
from nerve import Session, WorkflowContext
from nerve.engine.hosted_engines import HostedEngines
from nerve.engine.temporal import run_workflow
from nerve.engine.temporal.body_worker import run_body_worker
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import host_queue, leaf_queue
from nerve.store.memory import MemoryStore

if TYPE_CHECKING:
    import pytest


def make_session(host: str) -> Session:
    session = Session("team")
    session.node(lambda context: host, id="where")

    @session.workflow
    async def walks(ctx: WorkflowContext) -> Any:
        before = [(await ctx.run("where")).output for _ in range(4)]
        await ctx.gate("Continue?", choices=["yes"])
        return [*before, (await ctx.run("where")).output]

    return session


@asynccontextmanager
async def open_hosts(url: str, *hosts: str) -> AsyncIterator[tuple[TemporalRuns, dict[str, AsyncExitStack]]]:
    """Yield runs, and what stops the workers of each host."""
    projection, session = MemoryProjection(), make_session("bodies")
    session.use_engine(HostedEngines())
    client = await connect(url, projection)
    async with run_body_worker(client, session, MemoryStore, projection), AsyncExitStack() as everything:
        stacks: dict[str, AsyncExitStack] = {}
        for host in hosts:
            own = await connect(url, projection)  # one process has one worker for a queue
            executor = LeafExecutor(make_session(host), own, projection, projection.store, host)
            queues = [leaf_queue("team"), host_queue("team", host)]
            stacks[host] = await everything.enter_async_context(AsyncExitStack())
            await stacks[host].enter_async_context(LeafWorker(own, executor, queues).running())
        yield TemporalRuns(client, session, projection, projection.store), stacks


async def test_all_leaves_of_a_run_go_to_the_host_of_the_first(temporal_url: str) -> None:
    async with open_hosts(temporal_url, "one", "two") as (runs, _):
        run = await runs.start("walks")
        await run.next_wait()
        await run.command("answer", value="yes")
        hosts = await run.wait()
        assert len(hosts) == 5
        assert len(set(hosts)) == 1


async def test_a_run_whose_host_is_lost_is_held_and_its_leaf_is_placed_again_when_it_is_resumed(
    temporal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_workflow, "HOST_TIMEOUT", timedelta(seconds=1))
    async with open_hosts(temporal_url, "one", "two") as (runs, stacks):
        run = await runs.start("walks")
        await run.next_wait()
        [first] = {row.data for row in run.rows if row.path == "/where" and row.settles}
        lost, other = ("one", "two") if '"one"' in first else ("two", "one")
        await stacks[lost].aclose()
        await run.command("answer", value="yes")
        [hold] = await run.until(lambda: [row for row in run.rows if row.type == "workflow_held"])
        data = json.loads(hold.data)
        assert (data["reason"], data["path"]) == ("host_lost", "/where[5]")
        assert data["message"].startswith(
            f"No worker on host '{lost}', which has the files of the run, for 1 s."
        )
        await run.command("resume")
        assert await run.wait() == [lost] * 4 + [other]
        assert "node_retrying" not in run.types
