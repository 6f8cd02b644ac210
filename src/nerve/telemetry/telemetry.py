"""The telemetry of one session: reads what the engine has committed, and sends it as spans."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nerve.agents.redaction import Redactor
from nerve.core.nodes.context import ExecutionContext
from nerve.core.trace_context import TraceParent
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import JournalBroken, NerveError
from nerve.journal.events import RunStarted
from nerve.journal.paths import ROOT_PATH
from nerve.store.port import EventRow
from nerve.telemetry.journal_tracing import JournalTracing, recorded_path
from nerve.telemetry.metric_exporter import MetricExport, metric_interval_s
from nerve.telemetry.metrics import Metric, Sample
from nerve.telemetry.run_spans import ContentPolicy, RunSpans
from nerve.telemetry.sent_mark import SentMark
from nerve.telemetry.span_exporter import SpanExport, check_installation, current_traceparent, exporter_name
from nerve.telemetry.span_ids import span_id_of_call

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.engine.local_engine import LocalEngine
    from nerve.project.config import TelemetrySettings
    from nerve.telemetry.metrics import SessionMetrics

log = logging.getLogger("nerve")

MAX_TRACKED_RUNS = 4096
"""Runs whose open spans are in memory; those of others are read from their journals when they continue."""
COMMIT_SLACK_S = 2.0
"""Seconds by which commits may differ from the order of times in them."""
MAX_RESENT_EVENTS = 10_000
"""The last events of the store, whose spans are sent again after a crash."""
FLUSH_TIMEOUT_S = 3.0
"""Seconds for which closing a session waits for the collector three times: for metrics, spans, the rest."""


class Telemetry(JournalTracing):
    """The telemetry of one session, created where it is switched on.

    It is a watcher of the engine: it gets events after they are committed. What it sends is lost neither
    when the session closes nor when the process is killed: a mark in the store says up to which time the
    collector has everything, and `resend` sends what is later again, with the same ids.
    """

    def __init__(
        self,
        engine: LocalEngine,
        session: str,
        settings: TelemetrySettings,
        get_metrics: Callable[[], SessionMetrics],
        is_encoded: bool,
    ) -> None:
        check_installation()
        super().__init__(engine.store, lambda trace_id, foreign: self.export.is_sampled(trace_id, foreign))
        self._engine, self._session, self._get_metrics = engine, session, get_metrics
        self._policy = ContentPolicy(
            Redactor(os.environ).redact_text, settings.content and not is_encoded, is_encoded
        )
        self._runs: OrderedDict[str, RunSpans] = OrderedDict()
        self._export: SpanExport | None = None
        self._metric_export: MetricExport | None = None
        self._metrics: SessionMetrics | None = None
        self._metric_task: asyncio.Task[None] | None = None
        self.sent_spans = 0
        self.failed_spans = 0
        """Spans that the collector did not accept."""
        self._sent_until = 0.0
        self._has_failed_since_mark = False
        self._mark = SentMark(engine.store, session)
        self._opened_at = engine.clock.time()
        self._previous_mark: float | None = None

    @property
    def export(self) -> SpanExport:
        """The exporter, created with the first span: importing the SDK takes time."""
        if self._export is None:
            self._export = SpanExport(self._on_sent, self._on_failed)
            self._begin_mark()
            if exporter_name("METRICS") != "none":
                self._metric_export = MetricExport(self._opened_at)
                self._metrics = self._get_metrics()
                self._metrics.sources.append(self.collect)
                self._metric_task = spawn_detached(self._send_metrics_regularly())
        return self._export

    # -- events --------------------------------------------------------------------------------------

    def on_events(self, run: WorkflowRun, rows: list[EventRow]) -> None:
        """Send the spans that new events of a run end."""
        self._read_rows(run.run_id, rows)

    def _read_rows(self, run_id: str, rows: list[EventRow]) -> None:
        spans, export = self._spans_of(run_id, rows[0].seq), self.export
        for row in rows:
            if row.seq <= spans.seq:
                continue
            if spans.has_copied_events:
                spans.skip([row])
                continue
            for record in spans.read(row, self.traces.trace_of):
                export.send(record)
        if rows[-1].settles == ROOT_PATH:
            self._runs.pop(run_id, None)

    def _spans_of(self, run_id: str, next_seq: int) -> RunSpans:
        """Return what was read of a run; of one that was not in memory, its journal is read first."""
        spans = self._runs.get(run_id)
        if spans is None or spans.seq + 1 < next_seq:
            spans = self._runs[run_id] = RunSpans(run_id, self._session, self._policy)
            if next_seq > 1:
                spans.skip(row for row in self._engine.store.events(run_id) if row.seq < next_seq)
        self._runs.move_to_end(run_id)
        while len(self._runs) > MAX_TRACKED_RUNS:
            self._runs.popitem(last=False)
        return spans

    def _read_start(self, run_id: str) -> RunStarted:
        executor = self._engine.executors.get(run_id)
        return executor.start if executor is not None else super()._read_start(run_id)

    def _call_key(self, run_id: str, path: str) -> str:
        if (spans := self._runs.get(run_id)) is not None:
            return spans.resets.call_key(path)
        if (executor := self._engine.executors.get(run_id)) is not None:
            return executor.journal.call_key(path)
        return super()._call_key(run_id, path)

    # -- metrics -------------------------------------------------------------------------------------

    def collect(self) -> list[Metric]:
        """Return the metrics of the telemetry itself."""
        values = (("sent", self.sent_spans), ("failed", self.failed_spans))
        samples = [Sample((("result", result),), number) for result, number in values]
        help = "Spans that the collector has accepted, or not."
        return [Metric("nerve.telemetry.spans", "counter", "{span}", help, samples)]

    async def _send_metrics_regularly(self) -> None:
        while True:
            await asyncio.sleep(metric_interval_s())
            await self._send_metrics()

    async def _send_metrics(self) -> None:
        """Read the metrics here, on the event loop, and send them in a thread."""
        if (export := self._metric_export) is None or self._metrics is None:
            return
        try:
            metrics, now = self._metrics.collect(), self._engine.clock.time()
        except NerveError as error:
            log.warning("could not read metrics: %s", error)
        else:
            await run_in_daemon_thread(partial(export.send, metrics, now))

    # -- steps ---------------------------------------------------------------------------------------

    def span_of_step(self, context: ExecutionContext) -> TraceParent | None:
        """Return the span of the recorded step that a context belongs to; None outside of runs."""
        executor = self._engine.executors.get(context.run_id)
        if executor is None:
            return None
        key = executor.journal.call_key(recorded_path(context))
        return self.span_of_run(context.run_id)._replace(span_id=span_id_of_call(context.run_id, key))

    def current_traceparent(self) -> str | None:
        """Return the span in which the program of the user starts a run."""
        return current_traceparent()

    # -- after a crash -------------------------------------------------------------------------------

    def _begin_mark(self) -> None:
        self._previous_mark = self._mark.read()
        if self._previous_mark is None:
            start_daemon_thread(partial(self._mark.write_first, self._opened_at))

    async def _end_mark(self) -> None:
        await run_in_daemon_thread(self._mark.clear)

    def _on_sent(self, until: float, count: int) -> None:
        self.sent_spans += count
        self._sent_until = max(self._sent_until, until)
        # Before the spans of a killed process were sent again, a new mark would say that they are there.
        if self._previous_mark is None:
            self._mark.write_sometimes(self._sent_until - COMMIT_SLACK_S)

    def _on_failed(self, count: int) -> None:
        self.failed_spans += count
        self._has_failed_since_mark = True

    async def resend(self) -> None:
        """Send the spans again that a process may not have sent before it was killed."""
        _ = self.export
        if (since := self._previous_mark) is None:
            return
        store = self._engine.store
        for run_id in store.last_written_runs(MAX_RESENT_EVENTS):
            row = store.run(run_id)
            if row is None or row.session != self._session or run_id in self._runs:
                continue
            try:
                rows = store.events(run_id)
            except JournalBroken:
                continue
            # Without an end: the clock of the machine that was killed may have been ahead of this one.
            late = [each for each in rows if each.at > since]
            if late:
                self._read_rows(run_id, late)
            await asyncio.sleep(0)
        self._previous_mark = None

    # -- the end -------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Send what is queued, and note that nothing is missing; gives up after some seconds."""
        if self._export is None:
            return
        if self._metric_task is not None:
            self._metric_task.cancel()
        await self._send_metrics()
        self._has_failed_since_mark = False
        if await run_in_daemon_thread(self._export.flush) and not self._has_failed_since_mark:
            await self._end_mark()
        self._mark.close()

    async def close(self) -> None:
        """Send the rest; the store is closed already."""
        if self._export is not None:
            await run_in_daemon_thread(self._close_exporters)

    def _close_exporters(self) -> None:
        if self._metric_export is not None:
            self._metric_export.close()
        if self._export is not None:
            self._export.close()


async def run_in_daemon_thread(function: Callable[[], None], timeout: float | None = None) -> bool:
    """Call a function that may block for long; return whether it returned within some seconds."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def call() -> None:
        try:
            function()
        except Exception:
            log.exception("telemetry could not be sent")
        try:
            loop.call_soon_threadsafe(done.set_result, None)
        except RuntimeError:
            pass  # the loop has ended, and the function took too long

    start_daemon_thread(call)
    await asyncio.wait([done], timeout=FLUSH_TIMEOUT_S if timeout is None else timeout)
    return done.done()


def start_daemon_thread(function: Callable[[], None]) -> None:
    """Call a function in a thread that does not keep the process alive."""
    threading.Thread(target=function, name="nerve-telemetry", daemon=True).start()
