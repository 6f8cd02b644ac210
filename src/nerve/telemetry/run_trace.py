"""Which trace the spans of a run belong to, and which spans they follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nerve.core.trace_context import SAMPLED_FLAG, TraceParent
from nerve.journal.events import RunStarted
from nerve.lazy_dataclass import dataclass
from nerve.telemetry.span_ids import span_id_of_call, span_id_of_run, trace_id_of_run


@dataclass(frozen=True, slots=True)
class RunTrace:
    """The span of a run, the span around it, and the spans of other traces that it follows."""

    span: TraceParent
    parent: TraceParent | None = None
    is_parent_foreign: bool = False
    """Whether another program emits the span around it."""
    links: tuple[tuple[str, TraceParent], ...] = ()
    """Why each linked span is linked, and the span."""

    def span_of(self, span_id: int) -> TraceParent:
        """Return a span of this trace."""
        return self.span._replace(span_id=span_id)


class RunTraces:
    """Finds the traces of runs.

    A child run belongs to the trace of its parent. A run that a request with a `traceparent` started
    continues the trace of the request. Every other run has a trace of its own: a fork, a retry, a detached
    run and a later run of a chain may outlive what they come from by months, so they link to it instead.
    """

    def __init__(
        self,
        read_start: Callable[[str], RunStarted],
        call_key: Callable[[str, str], str],
        is_sampled: Callable[[int, TraceParent | None], bool],
    ) -> None:
        """`call_key` returns the key of a call of a run; `is_sampled` decides about a new trace."""
        self._read_start, self._call_key, self._is_sampled = read_start, call_key, is_sampled

    def trace_of(self, start: RunStarted) -> RunTrace:
        """Return the trace of a run."""
        span_id, links = span_id_of_run(start.run_id), tuple(self._links(start))
        if start.parent is not None:
            parent = self._find_call(start.parent, start.parent_path or "")
            return RunTrace(parent._replace(span_id=span_id), parent, links=links)
        # A copy or a successor would otherwise continue the trace of a request that started another run.
        is_copy = start.source_run is not None or start.previous_run is not None
        foreign = None if is_copy else TraceParent.parse(start.traceparent)
        trace_id = trace_id_of_run(start.run_id) if foreign is None else foreign.trace_id
        flags = SAMPLED_FLAG if self._is_sampled(trace_id, foreign) else 0
        return RunTrace(TraceParent(trace_id, span_id, flags), foreign, foreign is not None, links)

    def _links(self, start: RunStarted) -> Iterator[tuple[str, TraceParent]]:
        if start.source_run is not None:
            yield "forked_from", self._find_run(start.source_run)
        if start.previous_run is not None:
            yield "continued_from", self._find_run(start.previous_run)
        if start.started_by is not None and "run" in start.started_by:
            yield "started_by", self._find_call(start.started_by["run"], start.started_by.get("path", ""))

    def _find_run(self, run_id: str) -> TraceParent:
        """Return the span of a run by its id; of a deleted run, the one it has without its start."""
        start = self._read_start(run_id)
        without_links = RunStarted(
            run_id,
            parent=start.parent,
            parent_path=start.parent_path,
            traceparent=start.traceparent if start.source_run is None is start.previous_run else None,
        )
        return self.trace_of(without_links).span

    def _find_call(self, run_id: str, path: str) -> TraceParent:
        """Return the span of a call of a run."""
        return self._find_run(run_id)._replace(span_id=span_id_of_call(run_id, self._call_key(run_id, path)))
