"""Which times of a schedule are due, decided from its state and the time of the clock alone."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import NamedTuple

from nerve.core.triggers import ScheduleOptions, Trigger
from nerve.triggers.states import TriggerState

MAX_DUE = 1000
"""The number of times that one decision returns; the next one continues after them."""


class DueTimes(NamedTuple):
    """What a schedule has to do now."""

    times: list[float]
    """The times to start, in order; each is decided once it has been started or skipped."""
    missed: float | None
    """The first time that was missed for longer than the catch-up window."""
    considered: float
    """The time up to which the missed ones are decided."""
    wake: float | None
    """When to decide again; None after the last time."""


def begin_schedule(trigger: Trigger, state: TriggerState, now: float) -> bool:
    """Prepare the state for a schedule that is new, changed, or has a clock that went back."""
    assert trigger.schedule is not None
    if state.considered is None or state.hash != trigger.hash:
        state.hash, state.considered, state.floor, state.seen = trigger.hash, now, now, now
        state.queued.clear()
        return True
    if now < state.seen:
        # What was missed then may be due now. What was started has its key, so it does not start again.
        state.floor = min(state.floor, now)
        state.considered = max(state.floor, now - window_of(trigger.schedule))
        state.seen = now
        return True
    return False


def find_due_times(trigger: Trigger, state: TriggerState, now: float) -> DueTimes:
    """Return the times that are due; nothing changes, so that a crash loses and repeats nothing."""
    options = trigger.schedule
    assert options is not None
    assert state.considered is not None
    schedule, considered, missed = options.times, state.considered, None
    begin = max(considered, now - window_of(options))
    if begin > considered:
        first = schedule.next_after(considered)
        missed = first if first is not None and first <= begin else None
        considered = begin
    due: list[float] = []
    for at in schedule.times_between(considered, now):
        if (start := at + jitter_of(trigger, at)) > now:
            return DueTimes(due, missed, considered, start)
        due.append(at)
        if len(due) == MAX_DUE:
            return DueTimes(due, missed, considered, now)
    following = schedule.next_after(now)
    wake = None if following is None else following + jitter_of(trigger, following)
    return DueTimes(due, missed, considered, wake)


def window_of(options: ScheduleOptions) -> float:
    """Return for how many seconds after its time an occurrence can start."""
    return options.catch_up + options.jitter


def jitter_of(trigger: Trigger, at: float) -> float:
    """Return by how much an occurrence is late; it derives from its key, so that a restart has the same."""
    assert trigger.schedule is not None
    if not trigger.schedule.jitter:
        return 0.0
    digest = hashlib.sha256(trigger.start_key(format_occurrence(at)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * trigger.schedule.jitter


def format_occurrence(at: float) -> str:
    """Return a scheduled time as the id of its occurrence: in UTC, so that a change of the zone keeps it."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds" if at % 1 else "seconds")
    return text.removesuffix("+00:00") + "Z"
