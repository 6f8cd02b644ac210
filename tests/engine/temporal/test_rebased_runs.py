"""A run whose history the workers cannot replay is shown as stuck, and continues from its journal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from temporalio.api.enums.v1 import EventType

from engine.temporal import moving_project
from engine.temporal.api_servers import (
    open_body_worker,
    open_leaf_worker,
    open_server,
    wait_for_end,
    wait_for_gate,
    wait_for_run,
)
from nerve import Session, WorkflowContext
from nerve.api import Api
from nerve.core.nodes.context import ExecutionContext
from nerve.engine.temporal.inspection import inspect_cluster
from nerve.engine.temporal.projected_runs import ProjectedRuns
from nerve.engine.temporal.rebased_runs import RunRebase
from nerve.project.engine_url import TemporalAddress, parse_engine_url
from nerve.session.moved_runs import open_projected_runs

if TYPE_CHECKING:
    from temporalio.client import Client

paid: list[str] = []
"""The runs whose step with effect="once" was executed."""
allowed: list[asyncio.Event] = []
"""What this step waits for."""


def register_nodes(session: Session) -> None:
    @session.node(id="first")
    async def first(context: ExecutionContext) -> Any:
        return context.input

    @session.node(id="pay", effect="once")
    async def pay(context: ExecutionContext) -> Any:
        paid.append(context.run_id)
        await allowed[0].wait()
        return "paid"


def register_old(session: Session) -> None:
    register_nodes(session)

    @session.workflow
    async def order(ctx: WorkflowContext) -> Any:
        first = (await ctx.run("first", 1)).output
        payment = (await ctx.run("pay", 1)).output
        return [first, payment, await ctx.gate("Ship?"), await ctx.gate("Really?")]


def register_new(session: Session) -> None:
    """The same steps, begun in another order."""
    register_nodes(session)

    @session.workflow
    async def order(ctx: WorkflowContext) -> Any:
        payment = (await ctx.run("pay", 1)).output
        first = (await ctx.run("first", 1)).output
        return [first, payment, await ctx.gate("Ship?"), await ctx.gate("Really?")]


class Cluster:
    """An API server and a leaf worker, and body workers as a test starts them."""

    def __init__(
        self, api: Api, runs: ProjectedRuns, address: TemporalAddress, bodies: Callable[..., Any]
    ) -> None:
        self.api, self.runs, self.address, self.bodies = api, runs, address, bodies

    @property
    def client(self) -> Client:
        return self.runs.client

    async def rebase(self, run_id: str) -> None:
        row = self.runs.store.run(run_id)
        assert row is not None
        await RunRebase(self.runs).rebase(row)

    async def until_event(self, run_id: str, type: EventType.ValueType, count: int = 1) -> None:
        """Return when the history of a run has some events of a type."""
        async with asyncio.timeout(30):
            while True:
                history = await self.client.get_workflow_handle(run_id).fetch_history()
                if sum(event.event_type == type for event in history.events) >= count:
                    return
                await asyncio.sleep(0.05)


@pytest.fixture
async def cluster(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("nerve.engine.temporal.stuck_runs.REFRESH_S", 0.2)
    paid.clear()
    allowed[:] = [asyncio.Event()]
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            open_server(temporal_url, postgresql_url, tmp_path, register_old)
        )
        await stack.enter_async_context(open_leaf_worker(temporal_url, postgresql_url, register_old))
        address = parse_engine_url(temporal_url)
        runs = await stack.enter_async_context(open_projected_runs(address, postgresql_url, "default"))
        yield Cluster(
            api, runs, address, lambda register: open_body_worker(temporal_url, postgresql_url, register)
        )


async def answer_gates(api: Api, run_id: str, *answers: str) -> None:
    for answer in answers:
        gate = await wait_for_gate(api, run_id)
        await api.answer(run=run_id, gate=gate.gate_id, answer=answer)


def change_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the engine another order of commands: rows are written on their own, not with the next leaf."""
    monkeypatch.setattr("nerve.engine.temporal.outbox.MAX_CARRIED_ROWS", 0)


@pytest.mark.full
async def test_a_step_that_only_the_history_has_is_not_run_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = cluster.api
    async with cluster.bodies(register_old):
        run = await api.start(workflow="order")
        await wait_for_run(api, run.run_id, lambda _: paid)
    allowed[0].set()
    completed = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    await cluster.until_event(run.run_id, completed, 2)
    change_engine(monkeypatch)
    async with cluster.bodies(register_old):
        await check_stuck(cluster, run.run_id)
        await cluster.rebase(run.run_id)
        await answer_gates(api, run.run_id, "yes", "sure")
        ended = await wait_for_end(api, run.run_id)
    assert (ended.result, paid) == ([1, "paid", "yes", "sure"], [run.run_id])


async def check_stuck(cluster: Cluster, run_id: str) -> None:
    """Check that a run is shown as held, by itself, in lists, in counts and by the doctor."""
    api = cluster.api
    held = (await wait_for_run(api, run_id, lambda run: run.state == "held")).held
    assert held["reason"] == "stuck"
    assert "NonDeterministicError" in held["message"]
    assert held["message"].endswith(f"nerve rebase {run_id}")
    assert [row.run_id for row in (await api.runs(state=["held"])).runs] == [run_id]
    assert (await api.runs(state=["running"])).runs == []
    health = await api.health()
    assert (health.runs.get("held"), health.runs.get("running")) == (1, None)
    [report] = await inspect_cluster(cluster.address, ["default"], ["claude"])
    assert (report.body_workers, report.leaf_workers) == (1, {"bash": 1, "claude": 0})
    [stuck] = report.stuck_runs
    assert stuck.run == run_id
    assert stuck.failed_tasks >= 3


async def test_a_body_that_changed_is_held_as_in_the_local_engine(cluster: Cluster) -> None:
    api = cluster.api
    allowed[0].set()
    async with cluster.bodies(register_old):
        run = await api.start(workflow="order")
        await wait_for_gate(api, run.run_id)
    await cluster.rebase(run.run_id)
    async with cluster.bodies(register_new):
        held = await wait_for_run(api, run.run_id, lambda run: run.state == "held")
        assert held.held["reason"] == "mismatch"
        await api.resume(run=run.run_id, with_changes=True)
        await answer_gates(api, run.run_id, "yes", "sure")
        ended = await wait_for_end(api, run.run_id)
    assert (ended.result, paid) == ([1, "paid", "yes", "sure"], [run.run_id])


async def test_a_step_that_was_running_is_in_doubt_if_it_may_run_only_once(cluster: Cluster) -> None:
    api = cluster.api
    async with cluster.bodies(register_old):
        run = await api.start(workflow="order")
        await wait_for_run(api, run.run_id, lambda _: paid)
    await cluster.rebase(run.run_id)
    async with cluster.bodies(register_old):
        held = await wait_for_run(api, run.run_id, lambda run: run.state == "held")
        assert held.held["reason"] == "in doubt"
        await api.skip(run=run.run_id, path="/pay", output="paid by hand")
        await answer_gates(api, run.run_id, "yes", "sure")
        ended = await wait_for_end(api, run.run_id)
    assert (ended.result, paid) == ([1, "paid by hand", "yes", "sure"], [run.run_id])


async def test_a_rebase_can_be_interrupted_and_repeated_and_keeps_an_acknowledged_answer(
    cluster: Cluster, temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    api = cluster.api
    allowed[0].set()
    async with cluster.bodies(register_old):
        run = await api.start(workflow="order")
        await answer_gates(api, run.run_id, "yes")
    await cluster.client.get_workflow_handle(run.run_id).terminate("killed")
    await cluster.rebase(run.run_id)
    variables = {"NERVE_ENGINE": temporal_url, "NERVE_STORE": postgresql_url}
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nerve", "rebase", run.run_id[:13], "--json"),
        cwd=tmp_path,
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await command.communicate()
    assert json.loads(output) == {"rebased": [{"run_id": run.run_id, "workflow": "order"}]}
    async with cluster.bodies(register_old):
        await answer_gates(api, run.run_id, "sure")
        ended = await wait_for_end(api, run.run_id)
    assert (ended.result, paid) == ([1, "paid", "yes", "sure"], [run.run_id])


async def test_a_rebase_that_is_killed_anywhere_can_be_repeated(
    cluster: Cluster, temporal_url: str, postgresql_url: str
) -> None:
    api = cluster.api
    async with cluster.bodies(register_old):
        run = await api.start(workflow="order")
        await wait_for_run(api, run.run_id, lambda _: paid)
    allowed[0].set()
    await cluster.until_event(run.run_id, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 2)
    for point in range(12):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, moving_project.__file__, str(point), "rebase"),
            *(run.run_id, temporal_url, postgresql_url),
        )
        if await process.wait() == 0:
            break
        assert process.returncode == -9
    else:
        raise AssertionError("the run was never rebased")
    assert point >= 3
    async with cluster.bodies(register_old):
        await answer_gates(api, run.run_id, "yes", "sure")
        ended = await wait_for_end(api, run.run_id)
    assert (ended.result, paid) == ([1, "paid", "yes", "sure"], [run.run_id])
