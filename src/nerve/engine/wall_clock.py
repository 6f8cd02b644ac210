"""The wall-clock limit of a run, which does not count the time the run waits."""

from __future__ import annotations

from typing import Protocol

from nerve.core.clock import Clock, ClockTimer
from nerve.core.limits import limit_message
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.errors import LimitReached


class WallClockOwner(Protocol):
    """The run that has the limit."""

    def fail_run(self, error: Exception) -> None: ...


class WallClock:
    """Measures the active time of one run against its limit."""

    _timer: ClockTimer | None = None
    _active_since: float | None = None
    _is_closed = False

    def __init__(self, run: WorkflowRun, active_s: float, owner: WallClockOwner, clock: Clock) -> None:
        self._run, self._owner, self._clock = run, owner, clock
        self._active_s = active_s

    def update(self) -> None:
        """Run the clock while the run is running and not just waiting for children that wait."""
        if (wall_time := self._run.run_state.limits.wall_time) is None:
            return
        is_running = not self._is_closed and self._run.state is WorkflowState.RUNNING
        if is_running == (self._active_since is not None):
            return
        # Monotonic: a change of the system time neither extends nor cuts the limit.
        now = self._clock.monotonic()
        if self._active_since is not None:
            self._active_s += now - self._active_since
        self._active_since = now if is_running else None
        if self._timer is not None:
            self._timer.cancel()
        if is_running:
            self._timer = self._clock.call_later(max(0.0, wall_time - self._active_s), self._on_limit)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_limit(self) -> None:
        since = self._active_since
        active_s = self._active_s + (self._clock.monotonic() - since if since is not None else 0.0)
        limits, kind = self._run.run_state.limits, self._run.workflow.kind
        self._owner.fail_run(
            LimitReached("wall_time", limit_message("wall_time", limits, "", active_s, kind))
        )
