"""What runs in Temporal share: signals and facts from every server and step, and detached runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import open_server, open_servers, wait_for_end, wait_for_gate, wait_for_run
from engine.temporal.worker_processes import WorkerProcess
from nerve import FunctionNode, Session, WorkflowContext
from nerve.api import Api, ApiError
from nerve.core.runtime import SignalWait
from nerve.engine.temporal import fact_delivery
from nerve.engine.temporal.cluster_facts import ClusterFacts
from nerve.project.engine_url import parse_engine_url
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection
from spec.durable.test_forks import STATES

DEFINITION = """
name: greet
body: {kind: transform, id: hello, expression: "'hello ' + input"}
"""
TEST = """
name: test
body:
  kind: sequence
  steps:
    - {kind: wait, id: first, test: true, any: [{signal: ready}]}
    - {kind: assert, id: ready, signal: ready, value: {a: 1}}
    - {kind: wait, id: second, test: true, any: [{signal: ready}]}
    - {kind: retract, id: gone, signal: ready}
    - {kind: wait, id: third, test: true, any: [{signal: ready}]}
    - kind: transform
      id: end
      expression: "[steps.first.output, steps.second.output, steps.gone.output, steps.third.output]"
"""


def register(session: Session) -> None:
    @session.workflow
    async def await_signal(ctx: WorkflowContext) -> Any:
        return await ctx.wait_signal("shipped", key=ctx.input)

    @session.workflow
    async def await_briefly(ctx: WorkflowContext) -> Any:
        try:
            return await ctx.wait_signal("shipped", timeout=ctx.input)
        except TimeoutError:
            return "late"

    @session.workflow
    async def await_pairs(ctx: WorkflowContext) -> Any:
        patterns = {"pair": ["pair", "?a", "?a"], "single": ["single", "?b"]}
        wait = SignalWait("/wait", "", None, None, patterns)
        found = await ctx.execution.wait(wait)
        return [found["which"], found["captures"]]

    @session.workflow
    async def assert_facts(ctx: WorkflowContext) -> Any:
        await ctx.assert_fact(["pair", 1, 2])
        await ctx.assert_fact(["pair", 3, 3])
        return await ctx.retract_fact(["pair", "_", "..."])

    @session.workflow
    async def outer(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("await_signal", "child")

    @session.workflow
    async def starter(ctx: WorkflowContext) -> Any:
        return await ctx.start("await_signal", "detached", detached=True, label="own")

    for name in ("writer", "editor"):
        FunctionNode(name, session, lambda context: f"<{context.input}>")
    session.load(TEST, "yaml")
    session.load(STATES)


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_delivery, "SWEEP_INTERVAL_S", 0.5)


@pytest.fixture
async def servers(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[list[Api]]:
    """The APIs of two servers."""
    async with open_servers(temporal_url, postgresql_url, tmp_path, register) as apis:
        yield apis


async def wait_until_watched(api: Api, run_id: str) -> None:
    await wait_for_run(api, run_id, lambda run: run.state == "waiting")


async def test_a_signal_at_one_server_continues_the_runs_that_others_started(servers: list[Api]) -> None:
    first, second = servers
    keys = ["a", "b", "a", "a"]
    runs = [await first.start(workflow="await_signal", input=key) for key in keys]
    for run in runs:
        await wait_until_watched(first, run.run_id)
    await second.signal(label="shipped", key="a", value={"n": 1}, idempotency_key="once")
    # The reply comes when every server shows the effect.
    assert [(await first.run(run=run.run_id)).state == "waiting" for run in runs] == [
        key == "b" for key in keys
    ]
    for run in (runs[0], runs[2], runs[3]):
        assert (await wait_for_end(first, run.run_id)).result == {"n": 1}
    # A signal stays until it is retracted.
    later = await second.start(workflow="await_signal", input="a")
    assert (await wait_for_end(first, later.run_id)).result == {"n": 1}
    [fact] = (await first.facts(pattern=["signal", "shipped", "..."])).facts
    assert fact.record[-1] == {"key": "a", "value": {"n": 1}}
    await first.retract(fact=["signal", "shipped", "..."])
    assert (await second.facts(asserted=True)).facts == []


async def test_a_run_waits_for_a_fact_that_a_step_of_another_run_asserts(servers: list[Api]) -> None:
    waiting = await servers[0].start(workflow="await_pairs")
    await wait_until_watched(servers[0], waiting.run_id)
    asserting = await servers[1].start(workflow="assert_facts")
    assert (await wait_for_end(servers[0], waiting.run_id)).result == ["pair", {"a": 3}]
    assert (await wait_for_end(servers[0], asserting.run_id)).result == 2


async def test_a_test_says_whether_a_fact_is_there_now(servers: list[Api]) -> None:
    run = await servers[0].start(workflow="test")
    assert (await wait_for_end(servers[0], run.run_id)).result == [False, True, 1, False]


async def test_a_wait_with_a_timeout_ends_by_a_fact_or_by_the_clock(servers: list[Api]) -> None:
    late, early = [await servers[0].start(workflow="await_briefly", input=each) for each in (0.3, 60)]
    assert (await wait_for_end(servers[0], late.run_id)).result == "late"
    await wait_until_watched(servers[0], early.run_id)
    await servers[0].signal(label="shipped", value=1)
    assert (await wait_for_end(servers[0], early.run_id)).result == 1
    at_once = await servers[0].start(workflow="await_briefly", input=0)
    assert (await wait_for_end(servers[0], at_once.run_id)).result == 1


async def test_a_child_run_waits_for_a_signal(servers: list[Api]) -> None:
    run = await servers[0].start(workflow="outer")
    await wait_until_watched(servers[0], run.run_id)
    await servers[1].signal(label="shipped", key="child", value=5)
    assert (await wait_for_end(servers[0], run.run_id)).result == 5


async def test_a_step_starts_a_run_that_outlives_its_own(servers: list[Api]) -> None:
    run = await servers[0].start(workflow="starter")
    started = (await wait_for_end(servers[0], run.run_id)).result
    detached = await wait_for_run(servers[1], started, lambda each: each.state == "waiting")
    assert (detached.workflow, detached.label) == ("await_signal", "own")
    await servers[1].signal(label="shipped", key="detached", value="sent")
    assert (await wait_for_end(servers[0], started)).result == "sent"


async def test_a_fact_defines_a_workflow_and_starts_a_run_at_every_server(servers: list[Api]) -> None:
    first, second = servers
    await first.assert_fact(fact=["workflow-definition", {"source": DEFINITION, "notation": "yaml"}])
    run = await second.start(workflow="greet", input="you")
    assert (await wait_for_end(second, run.run_id)).result == "hello you"
    instance = ["workflow-instance", {"definition": "greet", "label": "x", "context": {"input": "me"}}]
    await asyncio.gather(*(server.assert_fact(fact=instance) for server in (first, second)))
    runs = (await first.runs(workflow="greet")).runs
    assert len(runs) == 2
    [started] = [each for each in runs if each.label == "x"]
    assert (await wait_for_end(second, started.run_id)).result == "hello me"
    await second.retract(fact=["workflow-definition", {"id": "greet"}])
    for server in servers:
        with pytest.raises(ApiError, match="not found"):
            await server.start(workflow="greet", input="you")


async def test_a_body_worker_tells_the_runs_whose_fact_a_lost_process_asserted(
    servers: list[Api], temporal_url: str, postgresql_url: str
) -> None:
    run = await servers[0].start(workflow="await_signal", input="lost")
    await wait_until_watched(servers[0], run.run_id)
    with closing(open_projection(temporal_url, postgresql_url)) as projection:
        # The process commits the fact, and tells nobody.
        [watch] = ClusterFacts(projection, "default").change([["signal", "shipped", {"key": "lost"}]]).settled
    assert watch.run == run.run_id
    assert (await wait_for_end(servers[0], run.run_id)).state == "completed"
    received = [
        event
        for event in (await servers[0].events(run=run.run_id)).events
        if event.event_type == "signal_received"
    ]
    assert len(received) == 1


def open_projection(temporal_url: str, postgresql_url: str) -> PostgresProjection:
    return PostgresProjection(postgresql_url, "default", str(parse_engine_url(temporal_url)))


async def test_a_server_starts_the_run_of_an_instance_that_a_lost_process_asserted(
    servers: list[Api], temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    instance = ["workflow-instance", {"definition": "assert_facts", "label": "lost"}]
    with closing(open_projection(temporal_url, postgresql_url)) as projection:
        ClusterFacts(projection, "default").change([instance])
    for _ in range(2):
        async with open_server(temporal_url, postgresql_url, tmp_path, register):
            [run] = (await servers[0].runs(workflow="assert_facts")).runs
            assert run.label == "lost"
    assert (await wait_for_end(servers[0], run.run_id)).result == 2


async def test_no_wait_is_left_in_the_database_when_the_runs_have_ended(
    servers: list[Api], postgresql_url: str
) -> None:
    run = await servers[0].start(workflow="await_signal", input="never")
    await wait_until_watched(servers[0], run.run_id)
    await servers[0].stop(run=run.run_id)
    with closing(PostgresStore(postgresql_url, None)) as store:
        assert store.select_rows("select_fact_watch", run.run_id, "/shipped") == []


async def test_a_fork_has_the_requests_and_answers_of_the_steps_that_it_copies(servers: list[Api]) -> None:
    """The waits of the fork look for answers that name it, not its source."""

    async def finish(run_id: str) -> Any:
        await wait_for_gate(servers[0], run_id)
        await servers[0].answer(run=run_id, answer="approve")
        return (await wait_for_end(servers[0], run_id)).result

    run = await servers[0].start(workflow="flow", input="tea")
    result = await finish(run.run_id)
    assert result == "<Correct: <Write about tea.>>"
    events = (await servers[0].events(run=run.run_id)).events
    path = next(event.path for event in events if event.event_type == "gate_waiting")
    fork = await servers[1].fork(run=run.run_id, at=path)
    assert await finish(fork.run_id) == result
    types = [event.event_type for event in (await servers[1].events(run=fork.run_id)).events]
    assert "facts_copied" in types
    requests = (await servers[1].facts(pattern=["agent-response", {"run": fork.run_id}])).facts
    assert len(requests) == 2


async def test_a_worker_process_asserts_facts_and_starts_runs(
    temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    tests = str(Path(__file__).parents[2])
    (tmp_path / "flows.py").write_text(
        f"import sys\n\nsys.path.append({tests!r})\nfrom engine.temporal.test_facts import register\n"
    )
    options = ("--bodies", "--leaves", "bash", "--with", "flows.py")
    with WorkerProcess(tmp_path, temporal_url, postgresql_url, *options) as worker:
        worker.wait_until_ready()
        async with open_server(temporal_url, postgresql_url, tmp_path, register) as api:
            waiting = await api.start(workflow="await_pairs")
            await wait_until_watched(api, waiting.run_id)
            asserting = await api.start(workflow="assert_facts")
            assert (await wait_for_end(api, waiting.run_id)).result == ["pair", {"a": 3}]
            assert (await wait_for_end(api, asserting.run_id)).result == 2
            starter = await api.start(workflow="starter")
            started = (await wait_for_end(api, starter.run_id)).result
            await wait_until_watched(api, started)
