"""The spans that a journal results in."""

from collections.abc import Iterator

from nerve.journal.events import (
    Event,
    NodeCancelled,
    NodeCompleted,
    NodeStarted,
    PathReset,
    RunCancelled,
    RunPaused,
    RunResumed,
    RunStarted,
)
from nerve.store.port import EventRow
from nerve.telemetry.run_spans import MAX_SPAN_EVENTS, ContentPolicy, RunSpans, SpanRecord
from nerve.telemetry.run_trace import RunTraces

START = RunStarted("run-1", "order", seed="s", limits={})
RESULT = '{"success":true,"output":1,"attributes":{}}'


def row_of(seq: int, event: Event, path: str = "", settles: str | None = None) -> EventRow:
    return EventRow(seq, float(seq), event.type, path, settles, event.encode())


def read_rows(rows: list[EventRow]) -> Iterator[SpanRecord]:
    traces = RunTraces(lambda run_id: START, lambda run_id, path: path, lambda trace_id, parent: True)
    spans = RunSpans("run-1", "default", ContentPolicy(lambda text: text))
    for row in rows:
        yield from spans.read(row, traces.trace_of)


def test_a_call_that_is_reset_has_another_span() -> None:
    started, completed = NodeStarted("charge", "h"), NodeCompleted("charge", True, RESULT, 1.0)
    first, second = read_rows(
        [
            row_of(1, START),
            row_of(2, started, "/charge"),
            row_of(3, completed, "/charge", "/charge"),
            row_of(4, PathReset("changed"), "/charge"),
            row_of(5, started, "/charge"),
            row_of(6, completed, "/charge", "/charge#4"),
        ]
    )
    assert first.name == second.name == "step charge"
    assert first.span.trace_id == second.span.trace_id
    assert first.span.span_id != second.span.span_id
    assert (second.start, second.end) == (5.0, 6.0)


def test_a_call_that_was_open_at_its_reset_has_no_span_until_it_runs_again() -> None:
    started, completed = NodeStarted("charge", "h"), NodeCompleted("charge", True, RESULT, 1.0)
    [only] = read_rows(
        [
            row_of(1, START),
            row_of(2, started, "/charge"),
            row_of(3, PathReset("changed"), "/charge"),
            row_of(4, started, "/charge"),
            row_of(5, completed, "/charge", "/charge#3"),
        ]
    )
    assert (only.start, only.end) == (4.0, 5.0)


def test_what_is_open_at_the_end_of_a_run_is_cancelled_below_its_parent() -> None:
    outer, inner, root = read_rows(
        [
            row_of(1, START),
            row_of(2, NodeStarted("loop", "h", is_control=True), "/loop"),
            row_of(3, NodeStarted("charge", "h"), "/loop/charge"),
            row_of(4, RunCancelled("run-1", "stop"), "", "/"),
        ]
    )
    inner, outer = (outer, inner) if outer.name == "step charge" else (inner, outer)
    assert inner.parent == outer.span
    assert outer.parent == root.span
    assert [record.attributes["nerve.outcome"] for record in (inner, outer)] == ["cancelled"] * 2
    assert root.attributes["nerve.run.state"] == "cancelled"


def test_a_cancelled_call_is_not_a_failure() -> None:
    [record] = read_rows(
        [
            row_of(1, START),
            row_of(2, NodeStarted("charge", "h"), "/charge"),
            row_of(3, NodeCancelled(node_id="charge"), "/charge", "/charge"),
        ]
    )
    assert record.error is None
    assert record.attributes["nerve.outcome"] == "cancelled"


def test_the_events_of_a_span_are_bounded() -> None:
    pauses = [
        row_of(seq, RunPaused("run-1") if seq % 2 == 0 else RunResumed("run-1"))
        for seq in range(2, MAX_SPAN_EVENTS + 52)
    ]
    [root] = read_rows([row_of(1, START), *pauses, row_of(900, RunCancelled("run-1"), "", "/")])
    assert len(root.events) == MAX_SPAN_EVENTS
    assert root.attributes["nerve.dropped_events"] == 50
