"""What a session measures: counts of its events, and its state when it is asked."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from nerve.core.events import RUN_END_EVENTS, STEP_SETTLED_EVENTS, STEP_START_EVENTS, WorkflowEventType
from nerve.core.step_names import plain_step_path
from nerve.core.usage_ledger import COST_SOURCES, read_amount
from nerve.engine.run_summary import GATE_KIND, QUEUE_KIND, local_day, usage_by_model
from nerve.journal.events import (
    CallSettled,
    CallStarted,
    QueueEntered,
    RunStarted,
    UsageReported,
    decode_event,
)
from nerve.store.port import EventRow

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

MetricKind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
MAX_SERIES = 500
"""Combinations of label values of one metric; further ones are counted together."""
OTHER = "(other)"
"""The label value of combinations beyond the maximum."""
MAX_OPEN_CONTROL_STEPS = 10_000
MAX_OPEN_QUEUE_WAITS = 10_000
MAX_DESCRIBED_ENTRIES = 10_000
"""Waiting entries up to which each queue has its own metrics; beyond, only all together have."""
DURATION_BOUNDS_S = (0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400)
"""Functions take milliseconds, agents minutes."""
DELAY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
"""Commits of a disk take tenths of a millisecond, those of a database milliseconds."""
LAG_INTERVAL_S = 1.0
"""Seconds between two measurements of the event loop."""
TOKEN_TYPES = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
}
SETTLED_TYPES = frozenset(STEP_SETTLED_EVENTS)
START_TYPES = frozenset(STEP_START_EVENTS)


class HistogramValue(NamedTuple):
    """The measurements of one series: how many are in each bucket, the last without an upper bound."""

    bounds: tuple[float, ...]
    buckets: tuple[int, ...]
    total: float


class Sample(NamedTuple):
    """One value of a metric."""

    labels: Labels
    value: float | HistogramValue


class Metric(NamedTuple):
    """One metric with the values of all its series."""

    name: str
    kind: MetricKind
    unit: str
    """The unit as OpenTelemetry writes it: `s`, `USD`, or `{run}` for a number of runs."""
    help: str
    samples: list[Sample]


class Series:
    """The values of one metric by labels, of which only a number is kept apart."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._keys: dict[tuple[str, ...], Labels] = {}

    def labels(self, *values: str) -> Labels:
        if (labels := self._keys.get(values)) is None:
            kept = values if len(self._keys) < MAX_SERIES else (OTHER,) * len(values)
            labels = tuple(zip(self._names, kept, strict=True))
            if kept is values:
                self._keys[values] = labels
        return labels


class CounterSeries(Series):
    """A number that only grows, by labels."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self._values: defaultdict[Labels, float] = defaultdict(float)

    def add(self, amount: float, *values: str) -> None:
        self._values[self.labels(*values)] += amount

    def samples(self) -> list[Sample]:
        return [Sample(labels, value) for labels, value in self._values.items()]


class HistogramSeries(Series):
    """Measurements in buckets, by labels."""

    def __init__(self, bounds: tuple[float, ...], *names: str) -> None:
        super().__init__(*names)
        self._bounds = bounds
        self._values: dict[Labels, list[float]] = {}

    def record(self, value: float, *values: str) -> None:
        labels = self.labels(*values)
        if (buckets := self._values.get(labels)) is None:
            # The sum comes after the buckets.
            buckets = self._values[labels] = [0] * (len(self._bounds) + 2)
        buckets[bisect_left(self._bounds, value)] += 1
        buckets[-1] += value

    def samples(self) -> list[Sample]:
        return [
            Sample(labels, HistogramValue(self._bounds, tuple(map(int, buckets[:-1])), buckets[-1]))
            for labels, buckets in list(self._values.items())
        ]


class NamedRun(Protocol):
    """A run as the metrics name it."""

    @property
    def run_id(self) -> str: ...

    @property
    def workflow_id(self) -> str: ...


class EventMetrics:
    """Counts the events of a session from the time it was created."""

    def __init__(self) -> None:
        self._runs_ended = CounterSeries("workflow", "state")
        self._durations = HistogramSeries(DURATION_BOUNDS_S, "workflow", "step", "kind", "outcome")
        self._retries = CounterSeries("workflow", "step")
        self._queue_waits = HistogramSeries(DURATION_BOUNDS_S, "queue")
        self._tokens = CounterSeries("model", "type")
        self._cost = CounterSeries("model")
        self._control_steps: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._open_queue_waits: OrderedDict[tuple[str, str], float] = OrderedDict()

    def on_events(self, run: NamedRun, rows: list[EventRow]) -> None:
        """Count new events of a run."""
        copied = 0
        if rows[0].type == WorkflowEventType.STARTED:
            start = decode_event(rows[0])
            # The run that a fork was copied from has counted these.
            copied = start.copied_events if isinstance(start, RunStarted) else 0
        for row in rows[copied:]:
            self._count_event(run, row)

    def _count_event(self, run: NamedRun, row: EventRow) -> None:
        if row.type in START_TYPES:
            call = decode_event(row)
            if isinstance(call, CallStarted) and call.is_control:
                self._control_steps[run.run_id, row.path] = None
                if len(self._control_steps) > MAX_OPEN_CONTROL_STEPS:
                    self._control_steps.popitem(last=False)
        elif row.type in SETTLED_TYPES:
            self._count_step(run, row)
        elif row.type in RUN_END_EVENTS:
            self._runs_ended.add(1, run.workflow_id, row.type.removeprefix("workflow_"))
        elif row.type == WorkflowEventType.NODE_RETRYING:
            self._retries.add(1, run.workflow_id, plain_step_path(row.path))
        elif row.type == WorkflowEventType.USAGE:
            self._count_usage(row)
        elif row.type == WorkflowEventType.QUEUE_WAITING:
            self._open_queue_waits[run.run_id, row.path] = row.at
            if len(self._open_queue_waits) > MAX_OPEN_QUEUE_WAITS:
                self._open_queue_waits.popitem(last=False)
        elif row.type == WorkflowEventType.QUEUE_ENTERED:
            self._count_queue_wait(run, row)
        elif row.type == WorkflowEventType.QUEUE_CANCELLED:
            self._open_queue_waits.pop((run.run_id, row.path), None)

    def _count_step(self, run: NamedRun, row: EventRow) -> None:
        event = decode_event(row)
        if not isinstance(event, CallSettled) or event.duration_ms is None:
            return
        key = run.run_id, row.path
        is_control = key in self._control_steps
        self._control_steps.pop(key, None)
        kind = "control" if is_control else kind_of_result(event)
        outcome = (
            "timeout" if event.settlement == "timeout" else "failed" if event.has_failed else "completed"
        )
        step = plain_step_path(row.path)
        self._durations.record(event.duration_ms / 1000, run.workflow_id, step, kind, outcome)

    def _count_queue_wait(self, run: NamedRun, row: EventRow) -> None:
        event = decode_event(row)
        began_at = self._open_queue_waits.pop((run.run_id, row.path), None)
        if began_at is not None and isinstance(event, QueueEntered):
            self._queue_waits.record(max(0.0, row.at - began_at), event.queue)

    def _count_usage(self, row: EventRow) -> None:
        event = decode_event(row)
        if not isinstance(event, UsageReported):
            return
        parts = event.extra.get("models")
        for usage in parts if isinstance(parts, list) and parts else [event.extra]:
            if not isinstance(usage, Mapping):
                continue
            model = str(usage.get("model") or "unknown")
            for field, type in TOKEN_TYPES.items():
                if (amount := read_amount(usage.get(field))) is not None:
                    self._tokens.add(amount, model, type)
            if (cost := read_amount(usage.get("cost"))) is not None:
                self._cost.add(cost, model)

    def collect(self) -> Iterator[Metric]:
        yield Metric(
            "nerve.runs.ended", "counter", "{run}", "Runs that have ended.", self._runs_ended.samples()
        )
        yield Metric(
            "nerve.step.duration",
            "histogram",
            "s",
            "Seconds that steps have taken, with their attempts.",
            self._durations.samples(),
        )
        yield Metric(
            "nerve.step.retries", "counter", "{retry}", "Repeated attempts.", self._retries.samples()
        )
        yield Metric(
            "nerve.queue.wait",
            "histogram",
            "s",
            "Seconds that entries have waited for a slot of a queue.",
            self._queue_waits.samples(),
        )
        yield Metric("nerve.tokens", "counter", "{token}", "Tokens of agents.", self._tokens.samples())
        yield Metric("nerve.cost", "counter", "USD", "Cost of agents in US dollars.", self._cost.samples())


def kind_of_result(event: CallSettled) -> str:
    """Return the kind of a step as far as its result says."""
    attributes = event.attributes
    if "provider" in attributes and "thread" in attributes:
        return "agent"
    if "exit_code" in attributes:
        return "command"
    return "child" if "run_id" in attributes else "function"


class LoopLag:
    """Measures how late the event loop runs a callback, again and again until the engine is closed."""

    def __init__(self, is_closed: Callable[[], bool]) -> None:
        self._is_closed = is_closed
        self._lags = HistogramSeries(DELAY_BOUNDS_S)
        self._loop: asyncio.AbstractEventLoop | None = None

    def samples(self) -> list[Sample]:
        """Return the lags so far; the first call on an event loop begins to measure it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._measure_soon(loop)
        return self._lags.samples()

    def _measure_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(LAG_INTERVAL_S, self._measure, loop, loop.time() + LAG_INTERVAL_S)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lags.record(max(0.0, loop.time() - due))
        if not self._is_closed():
            self._measure_soon(loop)


class SessionMetrics:
    """The metrics of one session. Its state is read from counts, at a cost that no number of runs changes."""

    def __init__(
        self,
        engine: LocalEngine,
        session: str,
        read_slots: Callable[[], Mapping[str, Mapping[str, float]]],
    ) -> None:
        """`read_slots` returns the slots of each provider, the busy ones, and the end of its rate limit."""
        self._engine, self._session, self._read_slots = engine, session, read_slots
        self.sources: list[Callable[[], Iterable[Metric]]] = []
        """What else has metrics, such as the streams of a server."""
        self._events = EventMetrics()
        engine.watchers.append(self._events.on_events)
        self._commits = HistogramSeries(DELAY_BOUNDS_S)
        engine.commit_time_watchers.append(self._commits.record)
        self._loop_lag = LoopLag(lambda: engine.closed)
        self.started_at = engine.clock.time()

    def count_events(self, run: NamedRun, rows: list[EventRow]) -> None:
        """Count new events of a run that another process executes."""
        self._events.on_events(run, rows)

    def collect(self) -> list[Metric]:
        """Return all metrics; callable on the event loop only."""
        return [
            *self._collect_runs(),
            *self._collect_queues(),
            *self._collect_providers(),
            *self._collect_engine(),
            *self._events.collect(),
            *(metric for source in self.sources for metric in source()),
        ]

    def _collect_runs(self) -> Iterator[Metric]:
        store, now = self._engine.store, self._engine.clock.time()
        yield make_gauge("nerve.runs", "{run}", "Runs by state.", "state", store.count_runs(self._session))
        yield make_gauge(
            "nerve.waits", "{wait}", "Open waits by kind.", "kind", store.count_waits(self._session)
        )
        ages = {
            kind: max(0.0, now - oldest[0].since)
            for kind in (GATE_KIND, QUEUE_KIND)
            if (oldest := store.open_waits(self._session, kind, limit=1))
        }
        yield make_gauge("nerve.waits.oldest_age", "s", "Age of the oldest open wait.", "kind", ages)

    def _collect_queues(self) -> Iterator[Metric]:
        store, now = self._engine.store, self._engine.clock.time()
        # Describing queues costs the more the more entries they have.
        if store.count_waits(self._session).get(QUEUE_KIND, 0) > MAX_DESCRIBED_ENTRIES:
            return
        queues = self._engine.queues.describe_queues()
        yield make_gauge(
            "nerve.queue.running",
            "{entry}",
            "Entries of queues that hold a slot.",
            "queue",
            {queue.name: queue.running for queue in queues},
        )
        yield make_gauge(
            "nerve.queue.waiting",
            "{entry}",
            "Entries of queues that wait.",
            "queue",
            {queue.name: queue.waiting for queue in queues},
        )
        yield make_gauge(
            "nerve.queue.oldest_age",
            "s",
            "Age of the first entry that waits.",
            "queue",
            {
                queue.name: 0.0 if queue.oldest_wait is None else max(0.0, now - queue.oldest_wait)
                for queue in queues
            },
        )

    def _collect_providers(self) -> Iterator[Metric]:
        providers, now = self._read_slots(), self._engine.clock.time()
        for name, help in (("slots", "Agents that may work at once."), ("busy", "Agents that work.")):
            values = {provider: slots[name] for provider, slots in providers.items()}
            yield make_gauge(f"nerve.provider.{name}", "{agent}", help, "provider", values)
        yield make_gauge(
            "nerve.provider.limited",
            "s",
            "Seconds until the rate limit of a provider ends.",
            "provider",
            {name: max(0.0, slots.get("limited_until", now) - now) for name, slots in providers.items()},
        )
        used = usage_by_model(self._engine.store, self._session, local_day(now))
        yield Metric(
            "nerve.day.tokens",
            "gauge",
            "{token}",
            "Tokens of agents since midnight.",
            [
                Sample((("model", model), ("type", type)), amounts[field])
                for model, amounts in used.items()
                for field, type in TOKEN_TYPES.items()
                if field in amounts
            ],
        )
        cost = {
            model: sum(amounts.get(f"{source}_cost", 0.0) for source in COST_SOURCES)
            for model, amounts in used.items()
        }
        yield make_gauge("nerve.day.cost", "USD", "Cost of agents since midnight.", "model", cost)

    def _collect_engine(self) -> Iterator[Metric]:
        engine = self._engine
        yield make_value("nerve.engine.runs", "{run}", "Runs in memory.", len(engine.executors))
        yield Metric(
            "nerve.engine.loop_lag",
            "histogram",
            "s",
            "Seconds by which the event loop is late.",
            self._loop_lag.samples(),
        )
        yield Metric(
            "nerve.store.commit_duration",
            "histogram",
            "s",
            "Seconds that commits have taken.",
            self._commits.samples(),
        )
        committer = engine.committer
        yield make_value(
            "nerve.store.commit_wait",
            "s",
            "Seconds that a commit waits for the disk, as a moving average.",
            committer.average_sync_wait_s,
        )
        yield make_value(
            "nerve.store.current_wait", "s", "Seconds since the current commit began.", committer.disk_wait_s
        )
        yield make_value(
            "nerve.store.queued_journals", "{journal}", "Journals to write.", committer.queued_count
        )


def make_gauge(name: str, unit: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    return Metric(
        name, "gauge", unit, help, [Sample(((label, key),), value) for key, value in values.items()]
    )


def make_value(name: str, unit: str, help: str, value: float) -> Metric:
    return Metric(name, "gauge", unit, help, [Sample((), value)])
