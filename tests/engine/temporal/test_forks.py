"""Forks and retries of runs in Temporal: the same parts of a journal are reused as on one machine."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import open_servers, wait_for_end, wait_for_gate
from nerve import FunctionNode, Session, WorkflowContext
from nerve.api import Api, ApiError

calls: list[Any] = []
"""What the leaf worker of this process has executed."""
broken: set[str] = set()


def register(session: Session) -> None:
    async def double(context: Any) -> int:
        calls.append(context.path)
        if context.path in broken:
            raise LookupError("no")
        return int(context.input) * 2

    FunctionNode("double", session, double)

    @session.workflow
    async def review(ctx: WorkflowContext) -> Any:
        first = (await ctx.run("double", ctx.input)).output
        answer = await ctx.gate("Continue?", choices=["yes", "no"])
        second = (await ctx.run("double", first)).output
        return [first, answer, second]

    @session.workflow
    async def outer(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("review", ctx.input)


@pytest.fixture
async def servers(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[list[Api]]:
    calls.clear()
    broken.clear()
    async with open_servers(temporal_url, postgresql_url, tmp_path, register) as apis:
        yield apis


async def run_to_end(servers: list[Api], workflow: str = "review") -> Any:
    run = await servers[0].start(workflow=workflow, input=3, wait=True)
    [gate] = run.gates
    await servers[1].answer(run=run.run_id, gate=gate.gate_id, answer="yes")
    return await wait_for_end(servers[0], run.run_id)


async def test_a_fork_of_an_ended_run_executes_only_what_follows_its_step(servers: list[Api]) -> None:
    run = await run_to_end(servers)
    assert (run.result, calls) == ([6, "yes", 12], ["/double", "/double[2]"])
    fork = await servers[1].fork(run=run.run_id, at="/double[2]", key="f")
    assert (await servers[0].fork(run=run.run_id, at="/double[2]", key="f")).run_id == fork.run_id
    ended = await wait_for_end(servers[0], fork.run_id)
    assert (ended.result, calls) == ([6, "yes", 12], ["/double", "/double[2]", "/double[2]"])


async def test_a_fork_with_another_input_asks_again(servers: list[Api]) -> None:
    run = await run_to_end(servers)
    fork = await servers[0].fork(run=run.run_id, input=5)
    gate = await wait_for_gate(servers[1], fork.run_id)
    await servers[1].answer(run=fork.run_id, gate=gate.gate_id, answer="no")
    assert (await wait_for_end(servers[0], fork.run_id)).result == [10, "no", 20]


async def test_an_open_run_and_its_open_child_run_are_forked(servers: list[Api]) -> None:
    run = await servers[0].start(workflow="outer", input=3, wait=True)
    fork = await servers[1].fork(run=run.run_id)
    gate = await wait_for_gate(servers[0], fork.run_id)
    [source_gate] = (await servers[0].run(run=run.run_id)).gates
    assert gate.gate_id != source_gate.gate_id
    await servers[0].answer(run=fork.run_id, gate=gate.gate_id, answer="yes")
    await servers[0].answer(run=run.run_id, gate=source_gate.gate_id, answer="no")
    assert (await wait_for_end(servers[0], fork.run_id)).result == [6, "yes", 12]
    assert (await wait_for_end(servers[0], run.run_id)).result == [6, "no", 12]
    assert calls.count("/double") == 1


async def test_a_retry_executes_only_the_failed_step_again(servers: list[Api]) -> None:
    broken.add("/double[2]")
    run = await run_to_end(servers)
    assert run.result == [6, "yes", None]
    broken.clear()
    retried = await servers[1].retry(run=run.run_id, key="again")
    ended = await wait_for_end(servers[0], retried.run_id)
    assert (ended.result, calls) == ([6, "yes", 12], ["/double", "/double[2]", "/double[2]"])
    assert (await servers[0].retry(run=run.run_id, key="again")).run_id == retried.run_id


async def test_a_fork_of_a_step_that_does_not_exist_names_the_steps(servers: list[Api]) -> None:
    run = await run_to_end(servers)
    with pytest.raises(ApiError, match=r"/dubble.*/double"):
        await servers[0].fork(run=run.run_id, at="/dubble")


async def test_a_run_with_too_many_events_is_not_forked(
    servers: list[Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await run_to_end(servers)
    monkeypatch.setattr("nerve.engine.temporal.carried_runs.MAX_CARRIED_EVENTS", 2)
    with pytest.raises(ApiError, match=r"at most 2\. Use ctx\.continue_as_new"):
        await servers[0].fork(run=run.run_id)
