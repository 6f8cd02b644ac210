"""Guards: bounds on time that stand still while what they are around waits for somebody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nerve.core.runtime import Timer, Wait
from nerve.core.workflow.replay import within

if TYPE_CHECKING:
    from nerve.engine.drive import Drive
    from nerve.engine.waits import OpenWait


class Guard:
    """The clock of an open timer. That it stands, and when it goes on, is told only if somebody waits."""

    def __init__(self, drive: Drive, opened: OpenWait, fire: Callable[[Wait], None]) -> None:
        self._drive, self._opened, self._fire = drive, opened, fire
        self._left, self._stops = 0.0, 0
        self._telling: asyncio.Handle | None = None
        self._told = False

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self._stops += 1
        if self._stops == 1:
            self._stop()
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self._go_on()

    def arm(self) -> None:
        opened = self._opened
        assert opened.deadline is not None
        delay = max(0.0, opened.deadline - time.time())
        opened.handle = self._drive.loop.call_later(delay, self._fire, opened.wait)

    def _stop(self) -> None:
        opened = self._opened
        if opened.handle is not None:
            opened.handle.cancel()
        self._left = max(0.0, (opened.deadline or 0.0) - time.time())
        opened.deadline = None
        self._telling = self._drive.loop.call_soon(self.tell)

    def tell(self) -> None:
        """Say that the clock stands, if that was not said yet."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
            if self._is_open:
                self._told = True
                self._note({"left": self._left})

    def _go_on(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if not self._is_open:
            return
        self._opened.deadline = time.time() + self._left
        self.arm()
        if self._told:
            self._told = False
            self._note({"deadline": self._opened.deadline})

    @property
    def _is_open(self) -> bool:
        return not self._drive.left and self._drive.waits.is_open(self._opened)

    def _note(self, data: dict[str, Any]) -> None:
        self._drive.note("timer_moved", self._opened.wait.path, {**data, "guard": True}, urgent=True)


def is_around(wait: Wait, place: str) -> bool:
    """Whether a wait bounds the time of a place; what a step does again stands beside it."""
    if not isinstance(wait, Timer) or wait.around is None:
        return False
    return within(place, wait.around)


def goes_on(moved: dict[str, Any] | None, deadline: float | None) -> float | None:
    """When a bound is over that was moved; one that stood still when its engine ended goes on now."""
    if moved is None:
        return deadline
    return float(moved["deadline"]) if "deadline" in moved else time.time() + float(moved["left"])
