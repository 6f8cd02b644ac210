"""What a schedule decides: for any restarts and movements of the clock, nothing twice and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.triggers import Trigger, make_trigger
from nerve.triggers.schedule_decisions import begin_schedule, find_due_times, format_occurrence, jitter_of
from nerve.triggers.states import TriggerState

START = 1_800_000_000.0
HOUR, DAY = 3600.0, 86_400.0


def schedule_trigger(**schedule: Any) -> Trigger:
    return make_trigger("tick", {"workflow": "report", "schedule": schedule}, "test")


class Scheduler:
    """Decides as the service does, with a crash that can come between a start and the write of the state."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger, self.started, self.keys = trigger, list[float](), set[str]()
        self.stored = TriggerState().encode()
        self.state = TriggerState()

    def look(self, now: float, crash_after: int | None = None) -> None:
        begin_schedule(self.trigger, self.state, now)
        due = find_due_times(self.trigger, self.state, now)
        if due.missed is not None:
            self.state.considered, self.state.seen = due.considered, now
        for count, at in enumerate(due.times):
            if count == crash_after:
                self.restart()
                return
            if format_occurrence(at) not in self.keys:  # unique in the store
                self.keys.add(format_occurrence(at))
                self.started.append(at)
            self.state.considered, self.state.seen = at, now
        if crash_after is not None:
            self.restart()
            return
        self.stored = self.state.encode()

    def restart(self) -> None:
        self.state = TriggerState.decode(self.stored)


MOVES = st.tuples(
    st.one_of(
        st.floats(0, 120),
        st.floats(0, 5 * HOUR),
        st.sampled_from([-30.0, 30.0, -DAY, DAY, -2 * HOUR, 3 * HOUR]),
    ),
    st.sampled_from([None, None, None, 0, 1, 3]),  # a crash after so many starts
    st.booleans(),  # a restart
)


@given(
    schedule=st.sampled_from([{"cron": "*/10 * * * *"}, {"every": 420}, {"cron": "7 * * * *"}]),
    catch_up=st.sampled_from([0.0, 600.0, HOUR, 2 * DAY]),
    jitter=st.sampled_from([0.0, 45.0, 900.0]),
    moves=st.lists(MOVES, max_size=25),
)
def test_each_time_starts_once_and_none_in_the_catch_up_window_is_lost(
    schedule: dict[str, Any], catch_up: float, jitter: float, moves: list[tuple[float, int | None, bool]]
) -> None:
    trigger = schedule_trigger(**schedule, catch_up=catch_up, jitter=jitter)
    scheduler, now, begin = Scheduler(trigger), START, START
    assert trigger.schedule is not None
    scheduler.look(now)
    expected: set[float] = set()
    for move, crash_after, is_restart in moves:
        now += move
        begin = min(begin, now)
        scheduler.look(now, crash_after)
        if is_restart:
            scheduler.restart()
        scheduler.look(now)  # the next process, or the next look of this one
        window = trigger.schedule.times.times_between(max(begin, now - catch_up - jitter), now)
        for at in window:
            # One that its jitter delays holds up those after it.
            if at + jitter_of(trigger, at) > now:
                break
            expected.add(at)
    assert len(scheduler.started) == len(set(scheduler.started))
    assert expected <= set(scheduler.started)
    assert all(at > min(begin, START) for at in scheduler.started)


def test_ten_years_of_a_daily_schedule_pass_in_one_look_per_day() -> None:
    trigger = schedule_trigger(cron="30 2 * * *", timezone="Europe/Berlin", catch_up="1d")
    scheduler = Scheduler(trigger)
    for day in range(3653):
        scheduler.look(START + day * DAY)
    assert len(scheduler.started) == 3652


@pytest.mark.parametrize("correction", [30.0, -30.0])
def test_a_correction_of_the_clock_by_30_seconds_neither_repeats_nor_loses_a_time(correction: float) -> None:
    scheduler = Scheduler(schedule_trigger(every=60))
    now = START
    for step in range(240):
        now += 5.0 + (correction if step % 40 == 20 else 0.0)
        scheduler.look(now)
    first, last = scheduler.started[0], scheduler.started[-1]
    assert scheduler.started == [first + 60 * index for index in range(int((last - first) // 60) + 1)]


def test_a_clock_that_was_a_day_ahead_repeats_nothing_and_the_day_is_not_lost() -> None:
    scheduler = Scheduler(schedule_trigger(cron="0 * * * *", catch_up="1h"))
    scheduler.look(START)
    scheduler.look(START + DAY)  # a wrong clock
    for quarter in range(1, 97):
        scheduler.look(START + quarter * 900)
    times = sorted(scheduler.started)
    assert len(times) == len(set(times)) == 24
    assert times[-1] - times[0] == 23 * HOUR


def test_what_was_missed_for_longer_than_the_window_is_reported_with_the_first_time() -> None:
    trigger = schedule_trigger(cron="0 * * * *", catch_up="30min")
    scheduler = Scheduler(trigger)
    scheduler.look(START)
    due = find_due_times(trigger, scheduler.state, START + DAY)
    assert due.missed is not None
    assert START < due.missed <= START + HOUR
    assert all(at > START + DAY - 1800 for at in due.times)


def test_another_schedule_under_the_same_name_begins_anew() -> None:
    scheduler = Scheduler(schedule_trigger(cron="0 0 * * *", catch_up="1d"))
    scheduler.look(START)
    scheduler.trigger = schedule_trigger(every=60, catch_up="1d")
    scheduler.look(START + DAY / 2)
    assert scheduler.started == []


def test_the_jitter_of_a_time_is_the_same_in_every_process_and_below_its_limit() -> None:
    trigger = schedule_trigger(every=60, jitter=300)
    assert trigger.schedule is not None
    delays = [jitter_of(trigger, START + 60 * index) for index in range(200)]
    assert delays == [jitter_of(trigger, START + 60 * index) for index in range(200)]
    assert all(0 <= delay < 300 for delay in delays)
    assert max(delays) - min(delays) > 200


def test_an_occurrence_is_named_by_its_time_in_utc() -> None:
    assert format_occurrence(START) == "2027-01-15T08:00:00Z"
    assert format_occurrence(START + 0.5) == "2027-01-15T08:00:00.500Z"
