"""What a session measures, as a collector and Prometheus get it."""

import asyncio
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nerve import Queue, Session
from nerve.agents import AgentNode
from nerve.agents.provider import TurnUsage
from nerve.core.nodes import BashNode
from nerve.core.policy import Retry
from nerve.telemetry.metrics import MAX_SERIES, OTHER, CounterSeries, make_gauge
from nerve.telemetry.prometheus_text import format_metrics
from nerve.testing import ScriptedProvider
from telemetry.collector import Collector


def read_samples(session: Session) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a scrape, by name and labels, read by the parser of Prometheus."""
    text = format_metrics(session.metrics.collect())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def sample(samples: dict, name: str, **labels: str) -> float:
    return float(samples[name, frozenset(labels.items())])


def working_session(**options: Any) -> Session:
    usage = TurnUsage(input_tokens=10, output_tokens=5, cache_read_tokens=100, cost=0.25, model="m-1")
    provider = ScriptedProvider(lambda call: [usage, "done"])
    session = Session(providers={"scripted": provider}, queues=[Queue("mail", concurrency=1)], **options)
    BashNode("list", session, "true")
    AgentNode("writer", session, provider="scripted")

    @session.step(retry=Retry(attempts=2, delay=0))
    async def flaky(number: int) -> None:
        raise ValueError("no")

    @session.workflow
    async def work(ctx: Any) -> None:
        await ctx.run("list")
        await ctx.run("writer", "write")
        await flaky(1)

    @session.workflow
    async def ask(ctx: Any) -> Any:
        return await ctx.gate("Go on?")

    return session


async def test_a_scrape_has_runs_steps_waits_and_usage() -> None:
    async with working_session() as session:
        _ = session.metrics
        run = await session.start("work")
        with pytest.raises(Exception, match="no"):
            await run.wait()
        waiting = await session.start("ask")
        await waiting.next_gate()
        samples = read_samples(session)
    assert sample(samples, "nerve_runs", state="failed") == 1
    assert sample(samples, "nerve_runs", state="waiting") == 1
    assert sample(samples, "nerve_runs_ended_total", workflow="work", state="failed") == 1
    assert sample(samples, "nerve_waits", kind="gate") == 1
    assert sample(samples, "nerve_waits_oldest_age_seconds", kind="gate") >= 0
    assert sample(samples, "nerve_tokens_total", model="m-1", type="cache_read") == 100
    assert sample(samples, "nerve_cost_usd_total", model="m-1") == 0.25
    assert sample(samples, "nerve_day_tokens", model="m-1", type="output") == 5
    assert sample(samples, "nerve_day_cost_usd", model="m-1") == 0.25
    assert sample(samples, "nerve_step_retries_total", workflow="work", step="/flaky") == 1
    assert sample(samples, "nerve_provider_slots", provider="scripted") == 4
    assert sample(samples, "nerve_provider_busy", provider="scripted") == 0
    assert sample(samples, "nerve_queue_waiting", queue="mail") == 0
    assert sample(samples, "nerve_engine_runs") == 1
    assert sample(samples, "nerve_store_commit_wait_seconds") >= 0
    for step, kind, outcome in (
        ("/list", "command", "completed"),
        ("/writer", "agent", "completed"),
        ("/flaky", "function", "failed"),
    ):
        labels = {"workflow": "work", "step": step, "kind": kind, "outcome": outcome}
        assert sample(samples, "nerve_step_duration_seconds_count", **labels) == 1
        assert sample(samples, "nerve_step_duration_seconds_bucket", le="+Inf", **labels) == 1
        assert sample(samples, "nerve_step_duration_seconds_sum", **labels) > 0


async def test_commits_and_the_event_loop_have_histograms_of_their_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nerve.telemetry.metrics.LAG_INTERVAL_S", 0.01)
    async with working_session() as session:
        session.metrics.collect()
        await (await session.start("ask")).next_gate()
        commits = sample(read_samples(session), "nerve_store_commit_duration_seconds_count")
        assert commits >= 1
        time.sleep(0.2)  # noqa: ASYNC251 - the step of a user that blocks the event loop
        deadline = time.monotonic() + 10
        while not (lags := read_samples(session)).get(("nerve_engine_loop_lag_seconds_count", frozenset())):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        bucket = frozenset({("le", "0.1")})
        late = sample(lags, "nerve_engine_loop_lag_seconds_count")
        assert lags["nerve_engine_loop_lag_seconds_bucket", bucket] < late
        assert sample(lags, "nerve_engine_loop_lag_seconds_sum") >= 0.15
        assert lags["nerve_store_commit_duration_seconds_bucket", frozenset({("le", "+Inf")})] >= commits


async def test_waits_in_a_queue_have_a_histogram() -> None:
    async with Session(queues=[Queue("mail", concurrency=1)]) as session:
        _ = session.metrics
        release = asyncio.Event()

        @session.step(queue="mail")
        async def send() -> None:
            await release.wait()

        @session.workflow
        async def mail(ctx: Any) -> None:
            await send()

        first, second = await session.start("mail"), await session.start("mail")
        while not session.engine.store.count_waits(session.name).get("queue"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        release.set()
        await first.wait()
        await second.wait()
        samples = read_samples(session)
    assert sample(samples, "nerve_queue_wait_seconds_count", queue="mail") == 1
    assert sample(samples, "nerve_queue_wait_seconds_sum", queue="mail") > 0


async def test_a_session_in_postgresql_has_the_same_metrics_and_sends_its_traces(
    postgresql_url: str, collector: Collector
) -> None:
    async with working_session(store=postgresql_url, telemetry=True) as session:
        session.metrics.collect()
        run = await session.start("work")
        with pytest.raises(Exception, match="no"):
            await run.wait()
        await (await session.start("ask")).next_gate()
        samples = read_samples(session)
    assert sample(samples, "nerve_runs", state="failed") == 1
    assert sample(samples, "nerve_waits", kind="gate") == 1
    assert sample(samples, "nerve_waits_oldest_age_seconds", kind="gate") >= 0
    assert sample(samples, "nerve_day_cost_usd", model="m-1") == 0.25
    assert sample(samples, "nerve_store_commit_duration_seconds_count") >= 2
    labels = {"workflow": "work", "step": "/writer", "kind": "agent", "outcome": "completed"}
    assert sample(samples, "nerve_step_duration_seconds_count", **labels) == 1
    root = collector.one("invoke_workflow work")
    assert root.has_failed
    assert {span.parent_id for span in collector.named("step list")} == {root.span_id}
    assert collector.metrics


async def test_a_fork_does_not_count_its_copied_steps() -> None:
    async with Session() as session:
        _ = session.metrics

        @session.step
        async def one() -> int:
            return 1

        @session.step
        async def two() -> int:
            return 2

        @session.workflow
        async def both(ctx: Any) -> int:
            return await one() + await two()

        run = await session.start("both")
        await run.wait()
        await (await session.fork(run.run_id, "/two")).wait()
        samples = read_samples(session)
    labels = {"workflow": "both", "kind": "function", "outcome": "completed"}
    assert sample(samples, "nerve_step_duration_seconds_count", step="/one", **labels) == 1
    assert sample(samples, "nerve_step_duration_seconds_count", step="/two", **labels) == 2


def test_the_number_of_series_is_bounded() -> None:
    counter = CounterSeries("workflow", "step")
    for number in range(MAX_SERIES * 3):
        counter.add(1, "import", f"/file-{number}")
    values = dict(counter.samples())
    assert len(values) == MAX_SERIES + 1
    assert values[("workflow", OTHER), ("step", OTHER)] == MAX_SERIES * 2


def test_labels_with_quotes_and_line_breaks_are_escaped() -> None:
    model = 'a "b"\\\nc'
    text = format_metrics([make_gauge("nerve.day.cost", "USD", "Cost.", "model", {model: 1.5})])
    [family] = text_string_to_metric_families(text)
    assert [(each.labels, each.value) for each in family.samples] == [({"model": model}, 1.5)]


async def test_what_a_scrape_reads_does_not_depend_on_the_number_of_runs() -> None:
    class CountingStore:
        """Counts the rows that a store returns."""

        def __init__(self, store: Any) -> None:
            self.store, self.rows = store, 0

        def __getattr__(self, name: str) -> Any:
            value = getattr(self.store, name)
            if not callable(value):
                return value

            def call(*args: Any, **kwargs: Any) -> Any:
                result = value(*args, **kwargs)
                self.rows += len(result) if isinstance(result, list | dict) else 1
                return result

            return call

    read = []
    for runs in (1, 40):
        async with Session() as session:

            @session.workflow
            async def hello(ctx: Any) -> str:
                return "hello"

            for _ in range(runs):
                await (await session.start("hello")).wait()
            store = CountingStore(session.engine.store)
            session.engine.store = store
            session.metrics.collect()
            read.append(store.rows)
            session.engine.store = store.store
    assert read[0] == read[1]


async def test_a_collector_gets_the_metrics_with_their_last_values(collector: Collector) -> None:
    async with working_session(telemetry=True) as session:
        run = await session.start("work")
        with pytest.raises(Exception, match="no"):
            await run.wait()
    [resource] = collector.metrics[-1].resource_metrics
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes}[
        "service.name"
    ] == "nerve"
    metrics = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    assert metrics["nerve.step.duration"].unit == "s"
    points = metrics["nerve.step.duration"].histogram.data_points
    steps = {
        pair.value.string_value: point.count
        for point in points
        for pair in point.attributes
        if pair.key == "step"
    }
    assert steps == {"/list": 1, "/writer": 1, "/flaky": 1}
    [ended] = metrics["nerve.runs.ended"].sum.data_points
    assert ended.as_double == 1 or ended.as_int == 1
    assert metrics["nerve.runs.ended"].sum.is_monotonic
    assert metrics["nerve.runs"].gauge.data_points


async def test_metrics_are_sent_at_the_interval_of_the_environment(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    async with working_session(telemetry=True) as session:
        run = await session.start("ask")
        await run.next_gate()
        async with asyncio.timeout(30):
            while len(collector.metrics) < 2:  # noqa: ASYNC110 - a thread of the collector sets no event
                await asyncio.sleep(0.01)


async def test_metrics_can_be_left_out(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    async with working_session(telemetry=True) as session:
        run = await session.start("work")
        with pytest.raises(Exception, match="no"):
            await run.wait()
    assert collector.metrics == []
    assert collector.spans
