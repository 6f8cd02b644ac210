"""A Temporal server that is killed loses nothing that was acknowledged, and no timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import open_server, open_workers, wait_for_end, wait_for_gate, wait_for_run
from nerve import FunctionNode, Session, WorkflowContext
from nerve.api import Api, ApiError
from nerve.api.models import HealthResponse, UsageResponse
from nerve.engine.temporal import stuck_runs
from nerve.ui.formatting import status_lines
from postgresql_server import PostgresqlServer
from temporal_cluster import TemporalCluster
from temporal_server import TemporalServer

KILLS = 4
TIMER_S = 2.0


def register(session: Session) -> None:
    FunctionNode("double", session, lambda context: context.input * 2)

    @session.workflow
    async def ask(ctx: WorkflowContext) -> Any:
        answers = [await ctx.gate(f"Question {number}?") for number in range(ctx.input)]
        return [(await ctx.run("double", 21)).output, *answers]

    @session.workflow
    async def wait(ctx: WorkflowContext) -> int:
        await ctx.sleep(TIMER_S)
        return (await ctx.run("double", 21)).output  # type: ignore[no-any-return]


@pytest.fixture
def server(temporal_server: TemporalServer) -> Iterator[TemporalServer]:
    """A server that the test kills: it ends with the thread that has started it again."""
    with type(temporal_server)() as server:
        yield server


async def restart(server: TemporalServer | PostgresqlServer) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def test_acknowledged_starts_and_answers_survive_kills_of_the_temporal_server(
    server: TemporalServer, postgresql_url: str, tmp_path: Path
) -> None:
    await check_kills(server, server, postgresql_url, tmp_path)


@pytest.mark.full
async def test_acknowledged_starts_and_answers_survive_kills_of_the_database_of_temporal(
    temporal_cluster: TemporalCluster, postgresql_url: str, tmp_path: Path
) -> None:
    await check_kills(temporal_cluster, temporal_cluster.postgresql, postgresql_url, tmp_path)


async def check_kills(
    temporal: TemporalServer, killed: TemporalServer | PostgresqlServer, store: str, project: Path
) -> None:
    """Kill a server after every acknowledgement."""
    namespace = temporal.create_namespace()
    url = temporal.url(namespace)
    async with open_server(url, store, project, register) as api:
        # Without workers, nothing but the history of Temporal has the start.
        run = await api.start(workflow="ask", input=KILLS)
        await restart(killed)
        await asyncio.to_thread(temporal.wait_for_namespace, namespace)
        async with open_workers(url, store, register):
            for number in range(KILLS):
                gate = await wait_for_gate(api, run.run_id)
                assert gate.prompt == f"Question {number}?"
                await answer(api, run.run_id, gate.gate_id, str(number))
                await restart(killed)
            assert (await wait_for_end(api, run.run_id)).result == [42, *map(str, range(KILLS))]


@pytest.mark.full
async def test_commands_starts_and_the_health_say_that_temporal_does_not_answer(
    server: TemporalServer, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck_runs, "REFRESH_S", 0.1)
    url = server.url(server.create_namespace())
    async with open_server(url, postgresql_url, tmp_path, register) as api:
        async with open_workers(url, postgresql_url, register):
            run = await api.start(workflow="ask", input=1)
            gate = await wait_for_gate(api, run.run_id)
        await asyncio.to_thread(server.kill)
        start = api.start(workflow="ask", input=1)
        answer = api.answer(run=run.run_id, gate=gate.gate_id, answer="yes")
        refused, unanswered = await asyncio.gather(start, answer, return_exceptions=True)
        for error, what in (refused, "the start of run"), (unanswered, "the command for run"):
            assert isinstance(error, ApiError)
            assert error.code == "busy"
            assert error.message.startswith("Temporal does not answer (")
            assert f"so {what} '" in error.message
            assert error.fix == "Check it with nerve doctor, then repeat."
        health = await wait_for_health(api, "degraded")
        assert health.engine is not None
        assert health.engine.startswith("Temporal does not answer (")
        assert f"engine: {health.engine}" in status_lines(health, UsageResponse())
        await asyncio.to_thread(server.start)
        assert (await wait_for_health(api, "ok")).engine is None


async def wait_for_health(api: Api, status: str) -> HealthResponse:
    async with asyncio.timeout(60):
        while (health := await api.health()).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return health


async def answer(api: Api, run_id: str, gate_id: str, value: str) -> None:
    """Answer a gate, again with the same key while Temporal is not ready."""
    async with asyncio.timeout(60):
        while True:
            try:
                await api.answer(run=run_id, gate=gate_id, answer=value, key=gate_id)
            except ApiError as error:
                assert error.code == "busy", error  # noqa: PT017
                await asyncio.sleep(0.1)
            else:
                return


async def test_a_timer_that_expires_while_everything_is_down_fires_once_when_it_is_up_again(
    server: TemporalServer, postgresql_url: str, tmp_path: Path
) -> None:
    url = server.url(server.create_namespace())
    async with open_server(url, postgresql_url, tmp_path, register) as api:
        async with open_workers(url, postgresql_url, register):
            run = await api.start(workflow="wait")
            await wait_for_run(api, run.run_id, lambda run: run.state == "waiting")
        await asyncio.to_thread(server.kill)
        [started] = await read_events(api, run.run_id, "timer_started")
        due = started.timestamp.timestamp() + TIMER_S
        await asyncio.sleep(due - time.time())
        back_at = time.time()
        await asyncio.to_thread(server.start)
        async with open_workers(url, postgresql_url, register):
            assert (await wait_for_end(api, run.run_id)).result == 42
        [fired] = await read_events(api, run.run_id, "timer_fired")
        assert fired.timestamp.timestamp() >= back_at > due


async def read_events(api: Api, run_id: str, type: str) -> list[Any]:
    return (await api.events(run=run_id, type=type)).events
