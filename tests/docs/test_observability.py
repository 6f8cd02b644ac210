"""The guide on observability: its program, its configurations, and its tables of metrics."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from docs.pages import FENCE, page
from nerve import Queue, Session
from nerve.agents import AgentNode
from nerve.agents.provider import TurnUsage
from nerve.core.policy import Retry
from nerve.project.config import TelemetrySettings, read_config
from nerve.telemetry.metrics import Sample
from nerve.telemetry.prometheus_text import prometheus_name
from nerve.testing import ScriptedProvider

TEXT = page("docs/guides/observability.md")


def test_the_program_prints_its_trace(tmp_path: Path) -> None:
    [program] = [block for kind, block in FENCE.findall(TEXT) if kind == "python"]
    script = tmp_path / "order.py"
    script.write_text(program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith("charged 5\n")
    assert re.findall(r'"name": "((?:invoke|step).*)"', done.stdout) == [
        "step charge",
        "invoke_workflow order",
    ]


def test_the_configurations_are_valid() -> None:
    configurations = [block for kind, block in FENCE.findall(TEXT) if kind == "json"]
    assert [read_config(text).telemetry for text in configurations] == [
        TelemetrySettings(),
        TelemetrySettings(content=True),
    ]


async def test_the_table_has_every_metric_with_its_labels() -> None:
    documented: dict[str, set[str]] = {}
    for names, labels in re.findall(r"^\| (`nerve_.*?) \| (.*?) \|", TEXT, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            documented[name] = set(re.findall(r"`(\w+)`", labels))
    attempts: list[str] = []
    usage = TurnUsage(input_tokens=1, cost=0.5, model="m-1")
    provider = ScriptedProvider(lambda call: [usage, "done"])
    async with Session(providers={"scripted": provider}, queues=[Queue("mail")]) as session:
        AgentNode("writer", session, provider="scripted")
        _ = session.metrics

        @session.step(retry=Retry(2, delay=0))
        async def flaky() -> None:
            attempts.append("attempt")
            if len(attempts) == 1:
                raise ValueError("no")

        @session.workflow
        async def work(ctx: Any) -> None:
            await ctx.run("writer", "write")
            await flaky()
            await ctx.gate("Go on?")

        run = await session.start("work")
        await run.next_gate()
        metrics = session.metrics.collect()
        await run.answer("yes")
        await run.wait()
        metrics += session.metrics.collect()
    found: dict[str, set[str]] = {}
    for metric in metrics:
        names = found.setdefault(prometheus_name(metric), set())
        names.update(name for sample in metric.samples for name, _ in Sample(*sample).labels)
    undocumented = found.keys() - documented.keys()
    assert undocumented == set()
    # Those of a server, and of a session with OpenTelemetry.
    assert documented.keys() - found.keys() == {"nerve_streams", "nerve_telemetry_spans_total"}
    for name, labels in found.items():
        assert labels <= documented[name], name
