"""Traces and metrics of a session in PostgreSQL, over the end of the process that owns it."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nerve import Session, WorkflowContext
from postgresql_server import PostgresqlServer
from server.processes import ServerProcess, wait_for_result, wait_until
from telemetry.collector import Collector


@pytest.fixture
def servers(tmp_path: Path, postgresql_url: str, collector: Collector) -> Iterator[list[ServerProcess]]:
    """A server that owns the session, and one that waits; both send their traces."""
    with ExitStack() as stack:
        servers = []
        for name in ("owner", "standby"):
            server = ServerProcess(tmp_path / name, postgresql_url, config={"telemetry": True})
            stack.callback(server.end)
            server.wait_ready()
            servers.append(server)
        yield servers


async def test_the_trace_of_a_run_continues_at_the_server_that_takes_over(
    servers: list[ServerProcess], collector: Collector
) -> None:
    owner, standby = servers
    async with owner.client() as client:
        run = await client.start(workflow="ask", wait=True)
    owner.process.kill()
    standby.wait_until_owner()
    async with standby.client() as client:
        await client.answer(run=run.run_id, answer="yes")
        await wait_for_result(client, run.run_id)
    wait_until(lambda: collector.named("invoke_workflow ask"), standby.log)
    standby.process.terminate()
    assert standby.process.wait(30) == 0, standby.log.read_text()
    root = collector.named("invoke_workflow ask")[0]
    steps = {span.span_id: span for span in collector.spans if span.parent_id == root.span_id}
    assert Counter(span.name for span in steps.values()) == {"step count": 3, "gate gate": 1}
    assert "Traceback" not in owner.log.read_text() + standby.log.read_text()


async def test_a_stopped_owner_that_continues_with_telemetry_ends_with_one_message(
    servers: list[ServerProcess], collector: Collector
) -> None:
    owner, standby = servers
    async with owner.client() as client:
        await client.start(workflow="ask", wait=True)
    owner.process.send_signal(signal.SIGSTOP)
    standby.wait_until_owner()
    owner.process.send_signal(signal.SIGCONT)
    assert owner.process.wait(30) == 1
    text = owner.log.read_text()
    assert "Another process has taken over the session" in text
    assert "Traceback" not in text


async def test_a_session_closes_without_its_database_and_sends_its_spans(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresqlServer() as server:
        async with Session(store=server.create_database(), telemetry=True) as session:

            @session.workflow
            async def hello(ctx: WorkflowContext) -> str:
                return "hello"

            await (await session.start("hello")).wait()
            server.stop()
    assert collector.names == ["invoke_workflow hello"]
    assert "Traceback" not in caplog.text
