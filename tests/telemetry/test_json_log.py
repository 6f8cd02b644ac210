"""The log as JSON lines: which run, step and span a record belongs to."""

import asyncio
import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.core.step_output import capture_standard_streams
from nerve.errors import NodeFailed
from nerve.server.failure_log import log_failures
from nerve.telemetry.json_log import log_as_json
from telemetry.collector import Collector
from telemetry.test_traces import ReversingCodec

log = logging.getLogger("shop")


async def run_failing_workflow(**options: Any) -> tuple[str, list[dict[str, Any]]]:
    """The id of a run whose step logs and fails, and the records of the log."""
    stream = io.StringIO()
    with log_as_json(stream), capture_standard_streams():
        async with Session(**options) as session:
            session.engine.watchers.append(log_failures)

            @session.step
            def charge(amount: int) -> None:
                log.warning("charging %d\u2028 now", amount)
                raise ValueError("card declined")

            @session.workflow
            async def pay(ctx: Any) -> None:
                await charge(5)

            run = await session.start("pay")
            with pytest.raises(NodeFailed):
                await run.wait()
        log.info("outside")
    return run.run_id, [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_records_of_steps_and_failures_have_run_and_path() -> None:
    run_id, records = await run_failing_workflow()
    own, step, end, outside = records
    assert (own["logger"], own["level"], own["message"]) == ("shop", "warning", "charging 5\u2028 now")
    assert (own["run"], own["path"]) == (run_id, "/charge")
    assert (step["run"], step["path"]) == (run_id, "/charge")
    assert "card declined" in step["message"]
    assert end["run"] == run_id
    assert "path" not in end
    assert "run" not in outside
    assert all("trace_id" not in record for record in records)


async def test_with_telemetry_records_have_the_ids_of_their_span(collector: Collector) -> None:
    _, (own, step, end, _) = await run_failing_workflow(telemetry=True)
    span, root = collector.one("step charge"), collector.one("invoke_workflow pay")
    assert (own["trace_id"], own["span_id"]) == (span.trace_id, span.span_id)
    assert (step["trace_id"], step["span_id"]) == (span.trace_id, span.span_id)
    assert (end["trace_id"], end["span_id"]) == (root.trace_id, root.span_id)


async def test_a_session_with_a_codec_logs_no_records_of_steps() -> None:
    _, records = await run_failing_workflow(codec=ReversingCodec())
    assert "charging" not in repr(records)
    assert "declined" not in repr(records)
    assert len(records) == 3


def test_an_exception_has_its_traceback() -> None:
    stream = io.StringIO()
    with log_as_json(stream):
        try:
            raise ValueError("no")
        except ValueError:
            log.exception("failed")
    record = json.loads(stream.getvalue())
    assert record["traceback"].endswith("ValueError: no")


async def test_a_server_writes_its_log_as_json_lines(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    script = Path(__file__).parents[1] / "server/project.py"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), str(folder), "--log-json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(60):
        await process.stdout.readline()
        if process.returncode is None:
            process.terminate()
        errors = (await process.stderr.read()).decode()
        await process.wait()
    process._transport.close()
    records = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert records, errors
    assert {"time", "level", "logger", "message"} <= records[0].keys()
