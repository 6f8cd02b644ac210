"""Traces and metrics of runs that a Temporal cluster executes: one of several servers sends them."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry.trace import get_current_span

from engine.temporal.api_servers import wait_for_end
from nerve import BashNode, Session
from nerve.agents.agent_node import AgentNode
from nerve.api import Api
from nerve.api.service import execute_operation
from nerve.api.shared_session import SharedSession
from nerve.project.engine_url import parse_engine_url
from nerve.session.body_worker import open_body_worker
from nerve.session.leaf_worker import LeafWorkerOptions, open_leaf_worker
from nerve.store.postgres_slots import PostgresSlots
from nerve.telemetry.stream_telemetry import LEASE_NAME
from nerve.testing import ScriptedProvider
from nerve_processes import Process
from server.processes import ServerProcess, wait_for_result, wait_until
from telemetry.collector import Collector, collecting

REQUEST = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def register(session: Session) -> None:
    session.providers["scripted"] = ScriptedProvider(
        lambda call: (call.options.get("env") or {}).get("TRACEPARENT", "none")
    )
    AgentNode("writer", session, provider="scripted")
    BashNode("show", session, "printf %s ${TRACEPARENT-none}")

    @session.step
    def look() -> str:
        span = get_current_span().get_span_context()
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-01"

    @session.workflow
    async def inner(ctx: Any) -> Any:
        return (await ctx.run("show")).output

    @session.workflow
    async def outer(ctx: Any) -> list[Any]:
        written = (await ctx.run("writer", "write")).output
        return [written, (await ctx.run("show")).output, await look(), await ctx.run_workflow("inner")]


@asynccontextmanager
async def open_cluster(
    temporal_url: str, store_url: str, project: Path, servers: int
) -> AsyncIterator[list[Api]]:
    """Workers and some servers of a project, in this process."""
    (project / ".nerve").mkdir()
    (project / ".nerve/config.json").write_text('{"telemetry": true}')
    address = parse_engine_url(temporal_url)
    bodies, leaves = Session(project=project), Session(project=project)
    for session in (bodies, leaves):
        register(session)
    options = LeafWorkerOptions(address, store_url, ["scripted", "bash"], 10, "shared")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_body_worker(bodies, address, store_url))
        await stack.enter_async_context(open_leaf_worker(leaves, options))
        yield [
            Api(await stack.enter_async_context(make_server(temporal_url, store_url, project).open()))
            for _ in range(servers)
        ]


def make_server(temporal_url: str, store_url: str, project: Path) -> SharedSession:
    engine = parse_engine_url(temporal_url)
    return SharedSession(store_url, project, execute_operation, register, engine=engine, is_server=True)


async def until(is_met: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_met():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_one_server_sends_the_trace_that_workers_hand_to_programs_and_agents(
    temporal_url: str, postgresql_url: str, tmp_path: Path, collector: Collector
) -> None:
    async with open_cluster(temporal_url, postgresql_url, tmp_path, servers=2) as servers:
        await until(lambda: telemetry_position(postgresql_url) is not None)
        started = await servers[0].start(workflow="outer", traceparent=REQUEST)
        run = await wait_for_end(servers[1], started.run_id)
        await until(lambda: collector.named("invoke_workflow outer"))
    root, child = collector.one("invoke_workflow outer"), collector.one("invoke_workflow inner")
    assert (root.trace_id, root.parent_id) == (REQUEST[3:35], REQUEST[36:52])
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    call, agent = collector.one("step inner"), collector.one("invoke_agent writer")
    shows = {span.parent_id: span for span in collector.named("step show")}
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert (agent.parent_id, call.parent_id, child.parent_id) == (root.span_id, root.span_id, call.span_id)
    steps = [agent, shows[root.span_id], collector.one("step look"), shows[child.span_id]]
    assert run.result == [f"00-{span.trace_id}-{span.span_id}-01" for span in steps]
    # Each once: the server without the lease has sent none.
    assert max(Counter(span.span_id for span in collector.spans).values()) == 1


async def test_every_server_counts_the_events_of_the_workers(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with open_cluster(temporal_url, postgresql_url, tmp_path, servers=2) as servers:

        async def count_ended(api: Api) -> dict[str, float]:
            async def measure(session: Session) -> dict[str, float]:
                [ended] = [each for each in session.metrics.collect() if each.name == "nerve.runs.ended"]
                return {dict(labels)["workflow"]: value for labels, value in ended.samples}

            return await api.measure(measure)

        for server in servers:
            assert await count_ended(server) == {}
        started = await servers[0].start(workflow="outer")
        run = await wait_for_end(servers[0], started.run_id)
        assert run.result[:2] == ["none", "none"]
        for server in servers:
            async with asyncio.timeout(30):
                while await count_ended(server) != {"inner": 1, "outer": 1}:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


async def test_every_server_shows_the_slots_and_rate_limits_of_all_workers(
    temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    async with make_server(temporal_url, postgresql_url, tmp_path).open() as shared:
        api, until = Api(shared), time.time() + 1000
        with closing(PostgresSlots(postgresql_url, "default")) as slots:
            # What two workers do.
            for slot in ("of one", "of another"):
                assert slots.take("scripted", slot, number=4, lease=60)
            slots.share_limit("scripted", until)
            assert slots.take(LEASE_NAME, "of a server", number=1, lease=60)

        async def measure(session: Session) -> dict[str, Any]:
            return {
                metric.name: {labels[0][1]: value for labels, value in metric.samples}
                for metric in session.metrics.collect()
                if metric.name.startswith("nerve.provider.")
            }

        measured = await api.measure(measure)
        [provider] = [each for each in (await api.agents()).providers if each.name == "scripted"]
    assert measured["nerve.provider.busy"] == {"scripted": 2}
    assert measured["nerve.provider.slots"] == {"scripted": 4}
    assert 900 < measured["nerve.provider.limited"]["scripted"] <= 1000
    assert (provider.busy, provider.limited_until) == (2, until)


async def test_a_collector_that_is_down_gets_the_spans_when_it_is_back(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with collecting() as collector:
        collector.status = 400
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with open_cluster(temporal_url, postgresql_url, tmp_path, servers=1) as [server]:
            await until(lambda: telemetry_position(postgresql_url) is not None)
            started = await server.start(workflow="inner")
            await wait_for_end(server, started.run_id)
            await until(lambda: len(collector.headers) >= 2)
            assert collector.spans == []
            collector.status = 200
            await until(lambda: collector.named("invoke_workflow inner"))
    assert set(collector.names) == {"invoke_workflow inner", "step show"}


async def test_what_a_collector_refused_until_the_end_of_a_server_is_sent_by_the_next(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setattr("nerve.telemetry.stream_telemetry.FLUSH_TIMEOUT_S", 0.5)
    with collecting() as collector:
        collector.status = 400
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with open_cluster(temporal_url, postgresql_url, tmp_path, servers=1) as [server]:
            await until(lambda: telemetry_position(postgresql_url) is not None)
            started = await server.start(workflow="inner")
            await wait_for_end(server, started.run_id)
        assert collector.spans == []
        collector.status = 200
        async with make_server(temporal_url, postgresql_url, tmp_path).open():
            await until(lambda: collector.named("invoke_workflow inner"))
    assert set(collector.names) == {"invoke_workflow inner", "step show"}


def telemetry_position(url: str) -> str | None:
    with psycopg.connect(url) as db:
        row = db.execute("SELECT value FROM properties WHERE name LIKE 'telemetry_sent_events %'").fetchone()
    return None if row is None else str(row[0])


# -- processes -----------------------------------------------------------------------------------------


@pytest.fixture
def processes(
    tmp_path: Path,
    postgresql_url: str,
    temporal_url: str,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[list[ServerProcess]]:
    """Two servers, of which the first sends, and a worker for bodies and steps."""
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    monkeypatch.setenv("NERVE_ENGINE", temporal_url)
    with ExitStack() as stack:
        servers = []
        for name in ("first", "second"):
            server = ServerProcess(tmp_path / name, postgresql_url, temporal_url, config={"telemetry": True})
            stack.callback(server.end)
            server.wait_ready()
            wait_until(lambda: telemetry_position(postgresql_url), server.log)
            servers.append(server)
        arguments = ["worker", "--bodies", "--leaves", "bash", "--with", "work.py", "--quiet"]
        with (tmp_path / "worker.log").open("w") as log:
            worker = Process(*arguments, cwd=servers[0].folder, stderr=log)
        stack.callback(worker.communicate)
        stack.callback(worker.terminate)
        yield servers


@pytest.mark.full
async def test_another_server_continues_the_traces_of_one_that_was_killed(
    processes: list[ServerProcess], collector: Collector
) -> None:
    first, second = processes
    async with first.client() as client, asyncio.timeout(60):
        run = await client.start(workflow="ask", wait=True)
    wait_until(lambda: collector.named("step count"), second.log)
    first.process.kill()
    async with second.client() as client:
        await client.answer(run=run.run_id, answer="yes")
        await wait_for_result(client, run.run_id)
    wait_until(lambda: collector.named("invoke_workflow ask"), second.log)
    second.process.terminate()
    assert second.process.wait(30) == 0, second.log.read_text()
    root = collector.named("invoke_workflow ask")[0]
    steps = {span.span_id: span for span in collector.spans if span.parent_id == root.span_id}
    assert Counter(span.name for span in steps.values()) == {"step count": 3, "gate gate": 1}
    same = {(span.span_id, span.name, span.start, span.end) for span in collector.spans}
    assert len(same) == 5
    assert max(Counter(span.span_id for span in collector.spans).values()) <= 2
    assert collector.metrics
    assert "Traceback" not in first.log.read_text() + second.log.read_text()
