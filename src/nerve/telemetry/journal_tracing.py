"""The spans of runs and steps as their journals say, for the code and the programs of steps."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from nerve.core.nodes.context import ExecutionContext
from nerve.core.trace_context import TRACEPARENT_VARIABLE, TraceParent
from nerve.errors import JournalBroken, StoreError
from nerve.journal.events import PathReset, RunStarted
from nerve.journal.index import PathResets, read_start
from nerve.store.port import EventReader
from nerve.telemetry.run_trace import RunTraces
from nerve.telemetry.span_exporter import (
    attach_span,
    check_installation,
    make_sampling,
)
from nerve.telemetry.span_ids import span_id_of_call

log = logging.getLogger("nerve")

MAX_CACHED_SPANS = 10_000
"""Runs whose spans are in memory, for the steps and child runs that refer to them."""


class JournalTracing:
    """Finds spans by run and path. Their ids derive from the journal, so all processes find the same ones."""

    def __init__(self, reader: EventReader, is_sampled: Callable[[int, TraceParent | None], bool]) -> None:
        """`is_sampled` decides about a new trace."""
        self._reader = reader
        self._run_spans: OrderedDict[str, TraceParent] = OrderedDict()
        self.traces = RunTraces(self._read_start, self._call_key, is_sampled)

    def _read_start(self, run_id: str) -> RunStarted:
        try:
            return read_start(self._reader, run_id)
        except JournalBroken:
            return RunStarted()

    def _call_key(self, run_id: str, path: str) -> str:
        if self._reader.last_event(run_id, PathReset.type) is None:
            return path
        resets = PathResets()
        for row in self._reader.events(run_id):
            if row.type == PathReset.type:
                resets.add(row.path, row.seq)
        return resets.call_key(path)

    async def prepare_step(self, run_id: str, path: str) -> None:
        """Do nothing: the journals of this process are in memory."""

    def span_of_run(self, run_id: str) -> TraceParent:
        """Return the span of a run."""
        if (span := self._run_spans.get(run_id)) is None:
            span = self._run_spans[run_id] = self.traces.trace_of(self._read_start(run_id)).span
            if len(self._run_spans) > MAX_CACHED_SPANS:
                self._run_spans.popitem(last=False)
        return span

    def find_span(self, run_id: str, path: str) -> TraceParent | None:
        """Return the span of a step, or of a run with an empty path."""
        span = self.span_of_run(run_id)
        if not path:
            return span
        return span._replace(span_id=span_id_of_call(run_id, self._call_key(run_id, path)))

    def span_of_step(self, context: ExecutionContext) -> TraceParent | None:
        """Return the span of the recorded step that a context belongs to; None outside of runs."""
        return self.find_span(context.run_id, recorded_path(context)) if context.run_id else None

    @contextmanager
    def open_step(self, context: ExecutionContext) -> Iterator[None]:
        """Make the span of a step current in a block."""
        span = self.span_of_step(context)
        with nullcontext() if span is None else attach_span(span):
            yield

    def environment_of(self, context: ExecutionContext) -> dict[str, str]:
        """Return the variables that tell a program which span it belongs to."""
        span = self.span_of_step(context)
        return {} if span is None else {TRACEPARENT_VARIABLE: str(span)}


class WorkerTracing(JournalTracing):
    """The spans of the steps that this process executes for a cluster; another one sends them.

    The reader waits for a server, so a span is read in a thread before its step begins.
    """

    def __init__(self, reader: EventReader) -> None:
        check_installation()
        super().__init__(reader, make_sampling())
        self._step_spans: OrderedDict[tuple[str, str], TraceParent] = OrderedDict()

    async def prepare_step(self, run_id: str, path: str) -> None:
        """Read the span of a step that begins; without the database, its programs get no trace."""
        try:
            span = await asyncio.to_thread(super().find_span, run_id, path)
        except StoreError as error:
            log.warning("the trace of run %s cannot be read: %s", run_id, error)
            return
        if span is not None:
            self._step_spans[run_id, path] = span
            self._step_spans.move_to_end((run_id, path))
        while len(self._step_spans) > MAX_CACHED_SPANS:
            self._step_spans.popitem(last=False)

    def find_span(self, run_id: str, path: str) -> TraceParent | None:
        """Return the span of a step that was prepared, or of its run."""
        return self._step_spans.get((run_id, path)) if path else self._run_spans.get(run_id)


def recorded_path(context: ExecutionContext) -> str:
    """Return the path of the recorded step that a context belongs to, which may be inside of it."""
    path: str = getattr(context.runtime, "path", context.path)
    return path
