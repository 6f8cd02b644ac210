"""What a collector gets when a process is killed, and what runs notice of a collector that is down."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from telemetry.collector import Collector, collecting

PROGRAM = Path(__file__).parent / "crashing_program.py"
STEPS = 20


def run_program(store: Path, *arguments: str) -> int:
    command = [sys.executable, str(PROGRAM), str(store), str(STEPS), *arguments]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("delay", ["1", "60000"])
def test_a_killed_process_loses_no_span(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: str
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", delay)
    store = tmp_path / "nerve.db"
    assert run_program(store) == -9
    sent_before = len(collector.spans)
    assert run_program(store, "resume") == 0
    paths = {span.attributes.get("nerve.step.path") for span in collector.named("step work")}
    assert len(paths) == STEPS + 3
    [root_id] = {span.span_id for span in collector.named("invoke_workflow job")}
    assert {span.parent_id for span in collector.named("step work")} == {root_id}
    assert len({span.trace_id for span in collector.spans}) == 1
    # At most once more, and then as the same span.
    counts = Counter(span.span_id for span in collector.spans)
    assert max(counts.values()) <= 2
    assert len(counts) == STEPS + 4
    same = {(span.span_id, span.name, span.start, span.end) for span in collector.spans}
    assert len(same) == len(counts)
    assert sent_before == 0 or delay == "1"
    [interrupted] = {
        tuple(name for name, _ in span.events) for span in collector.named("step work") if span.events
    }
    assert interrupted == ("retry",)


async def test_after_a_clean_stop_nothing_is_sent_again(collector: Collector, tmp_path: Path) -> None:
    for _ in range(2):
        async with Session(store=tmp_path / "nerve.db", telemetry=True) as session:

            @session.workflow
            async def hello(ctx: Any) -> str:
                return "hello"

            await session.recover()
            if not collector.spans:
                await (await session.start("hello")).wait()
    assert len(collector.spans) == 1


async def test_what_a_collector_did_not_accept_before_the_stop_is_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work_once(run: bool) -> None:
        async with Session(store=tmp_path / "nerve.db", telemetry=True) as session:

            @session.workflow
            async def hello(ctx: Any) -> str:
                return "hello"

            await session.recover()
            if run:
                await (await session.start("hello")).wait()

    with collecting(status=400) as broken:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", broken.url)
        await work_once(run=True)
        assert broken.headers
    with collecting() as working:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", working.url)
        await work_once(run=False)
        assert working.names == ["invoke_workflow hello"]


async def test_a_run_that_was_not_in_memory_continues_its_spans(collector: Collector, tmp_path: Path) -> None:
    async def open_session() -> Session:
        session = Session(store=tmp_path / "nerve.db", telemetry=True)

        @session.workflow
        async def ask(ctx: Any) -> str:
            return str(await ctx.gate("Go on?"))

        return session

    async with await open_session() as session:
        run = await session.start("ask")
        await run.next_gate()
    assert collector.spans == []
    async with await open_session() as session:
        await session.recover()
        found = session.get_workflow_run(run.run_id)
        assert found is not None
        await found.answer("yes")
        await found.wait()
    gate, root = collector.one("gate gate"), collector.one("invoke_workflow ask")
    assert gate.parent_id == root.span_id
    assert root.start <= gate.start < gate.end <= root.end


async def test_a_collector_that_is_down_neither_stops_runs_nor_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Accepts connections and never answers: worse than one that refuses them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setattr("nerve.telemetry.telemetry.FLUSH_TIMEOUT_S", 0.1)
        async with Session(telemetry=True) as session:

            @session.step
            async def work(number: int) -> int:
                return number

            @session.workflow
            async def job(ctx: Any) -> int:
                for number in range(500):
                    await work(number)
                return 500

            async with asyncio.timeout(30):
                assert await (await session.start("job")).wait() == 500
            assert session._telemetry is not None
            assert session._telemetry._runs == {}
            closes_at = time.monotonic()
        assert time.monotonic() - closes_at < 15
    assert "Queue full, dropping Span" in caplog.text
    # The thread that still waits for the collector would log into other tests.
    async with asyncio.timeout(30):
        while any(thread.name == "nerve-telemetry" for thread in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
