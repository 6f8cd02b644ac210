"""The index of a journal says the same as a simple loop over its rows, at once or event by event."""

from __future__ import annotations

from hypothesis import given, settings

from journal import naive
from journal.journals import PATHS, journals
from nerve.journal.index import JournalIndex, read_events
from nerve.store.port import EventRow

MANY = settings(max_examples=150, deadline=None)


def check(index: JournalIndex, rows: list[EventRow]) -> None:
    assert index.seq == len(rows)
    assert index.start.to_data() == naive.start_data(rows)
    assert index.limits == naive.limits(rows)
    assert index.step_limits == naive.step_limits(rows)
    assert index.usage == naive.usage(rows)
    assert index.usage_in_progress == naive.usage_in_progress(rows)
    assert {path: recorded.seq for path, recorded in index.unsettled.items()} == naive.unsettled(rows)
    assert list(index.unsettled) == list(naive.unsettled(rows))
    assert {path: recorded.seq for path, recorded in index.open_waits.items()} == naive.open_waits(rows)
    assert index.unknown_outcomes == naive.unknown_outcomes(rows)
    open_calls, replaced_calls, counted_runs = naive.open_child_calls(rows)
    assert index.children.open_calls == open_calls
    assert sorted(index.children.replaced_calls) == sorted(replaced_calls)
    assert index.children.counted_runs == counted_runs
    assert list(index.children.unsettled_keys) == naive.unsettled_child_keys(rows)
    assert index.clock.seconds == naive.active_seconds(rows)
    assert index.optional_until == naive.optional_until(rows)
    assert {path: event.to_data() for path, event in index.decisions.items()} == naive.decisions(rows)
    assert index.has_gate == any(row.type == "gate_waiting" for row in rows)
    for path in PATHS:
        assert index.resets.call_key(path) == naive.call_key(path, rows)
        assert index.resets.settle_key(path) == naive.settle_key(path, rows)
        assert index.steering(path) == [data["text"] for data in naive.since_start(rows, path, "steered")]
        for event, type in (
            (index.last_thread(path), "agent_thread"),
            (index.last_timer_move(path), "timer_moved"),
        ):
            found = naive.since_start(rows, path, type)
            assert (event and event.to_data()) == (found[-1] if found else None)


@MANY
@given(journals())
def test_the_index_of_a_journal_is_what_a_loop_over_its_rows_finds(rows: list[EventRow]) -> None:
    check(JournalIndex(rows), rows)


@MANY
@given(journals())
def test_an_index_that_grew_event_by_event_is_the_same(rows: list[EventRow]) -> None:
    index = JournalIndex()
    for number in range(0, len(rows), 3):
        index.add(rows[: number + 3])  # rows it has are skipped
    check(index, rows)
    check(JournalIndex(read_events(rows)), rows)
