"""The next deadline of a run is the earliest of the timers that are open and not paused."""

from contextlib import AbstractContextManager
from random import Random
from typing import Any

import pytest

from nerve.engine import run_timers
from nerve.engine.run_timers import DeadlineTimer, RunTimers

pytestmark = pytest.mark.local("sets the clock")


class SilentJournal:
    """Accepts the events of timers."""

    def append_event(self, *event: Any, **options: Any) -> int:
        return 0


class Timers:
    """Open timers, in the engine's structure and in a plain list."""

    def __init__(self) -> None:
        self.timers, self.open = RunTimers(), list[DeadlineTimer]()

    def start(self, deadline: float) -> DeadlineTimer:
        journal: Any = SilentJournal()
        path = f"/{len(self.open)}"
        timer = DeadlineTimer(
            path, deadline, "/step", journal, self.timers, lambda: timer in self.open, lambda: None
        )
        self.open.append(timer)
        return timer

    def close(self, timer: DeadlineTimer) -> None:
        self.open.remove(timer)
        self.timers.remove(timer)


async def test_the_next_deadline_follows_timers_that_open_pause_resume_and_close() -> None:
    random, timers = Random(3), Timers()
    pauses: list[AbstractContextManager[None]] = []
    for _ in range(2000):
        match random.randrange(4):
            case 0:
                timers.start(4e9 + random.randrange(1000))
            case 1 if timers.open:
                timers.close(random.choice(timers.open))
            case 2 if timers.open:
                pauses.append(random.choice(timers.open).pause())
                pauses[-1].__enter__()
            case 3 if pauses:
                pauses.pop(random.randrange(len(pauses))).__exit__(None, None, None)
        deadlines = [timer.deadline for timer in timers.open if timer.deadline is not None]
        assert timers.timers.next_deadline == min(deadlines, default=None)
    for pause in pauses:
        pause.__exit__(None, None, None)
    for timer in list(timers.open):
        timers.close(timer)
    assert timers.timers.next_deadline is None


async def test_closed_timers_are_dropped_while_an_earlier_one_stays_open() -> None:
    timers = Timers()
    first = timers.start(4e9)
    for _ in range(1000):
        timers.close(timers.start(5e9))
    assert timers.timers.next_deadline == 4e9
    assert len(timers.timers._deadlines) < 2 * run_timers.MAX_STALE_DEADLINES
    timers.close(first)
