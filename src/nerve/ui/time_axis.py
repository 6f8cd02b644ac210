"""The time axis of a timeline: times as positions between 0 and 1, with long idle gaps folded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from nerve.lazy_dataclass import dataclass
from nerve.ui.formatting import format_two_units
from nerve.ui.step_periods import Period

ACTIVE_KINDS = ("run", "tool")
"""The kinds of bars in which something of the run is active."""

MIN_FOLDED_S = 5.0
"""Shorter idle gaps are not folded."""
FOLD_WIDTH, MAX_FOLDS_WIDTH = 0.04, 0.35
"""The width of a folded gap, and the maximum width of all of them, as fractions."""
TICK_COUNT = 6
NICE_STEPS_S = (
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
    14400, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AxisPart:
    """A part of the time axis: linear, or a folded gap in which nothing was active."""

    start: float
    end: float
    x: float
    width: float
    label: str = ""
    """Of a folded gap: `idle 3 d 4 h`."""

    @property
    def is_folded(self) -> bool:
        return bool(self.label)


@dataclass(frozen=True, slots=True)
class AxisTick:
    x: float
    label: str
    """The time since the start of the run."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Maps times to positions between 0 and 1. A later time never has a smaller position."""

    parts: tuple[AxisPart, ...]
    origin: float
    """The start of the run, from which the labels count; the axis may start later."""

    @classmethod
    def of(
        cls, started: float, ended: float, periods: Iterable[Period], origin: float | None = None
    ) -> TimeAxis:
        """Return the axis from a start to an end, with its long idle gaps folded."""
        origin = started if origin is None else origin
        ended = max(ended, started + 0.001)
        gaps = find_idle_gaps(started, ended, periods)
        if not gaps:
            return cls((AxisPart(started, ended, 0.0, 1.0),), origin)
        linear_s = (ended - started) - sum(end - start for start, end in gaps)
        fold_width = min(FOLD_WIDTH, MAX_FOLDS_WIDTH / len(gaps)) if linear_s > 0 else 1 / len(gaps)
        linear_width = 1 - fold_width * len(gaps)
        parts: list[AxisPart] = []
        x, at = 0.0, started
        for start, end in [*gaps, (ended, ended)]:
            if start > at:
                width = linear_width * (start - at) / linear_s
                parts.append(AxisPart(at, start, x, width))
                x += width
            if end > start:
                parts.append(AxisPart(start, end, x, fold_width, f"idle {format_two_units(end - start)}"))
                x += fold_width
            at = end
        return cls(tuple(parts), origin)

    @property
    def folds(self) -> list[AxisPart]:
        return [part for part in self.parts if part.is_folded]

    @property
    def started(self) -> float:
        return self.parts[0].start

    @property
    def ended(self) -> float:
        return self.parts[-1].end

    def position(self, at: float) -> float:
        """Return the position of a time; times outside of the axis are moved to its ends."""
        number = max(0, bisect_right(self.parts, at, key=lambda part: part.start) - 1)
        part = self.parts[number]
        inside = min(max((at - part.start) / (part.end - part.start), 0.0), 1.0)
        return min(part.x + part.width * inside, 1.0)

    @property
    def ticks(self) -> list[AxisTick]:
        """The labelled times in the linear parts."""
        linear = [part for part in self.parts if not part.is_folded]
        total_s = sum(part.end - part.start for part in linear)
        step = next((nice for nice in NICE_STEPS_S if nice * TICK_COUNT >= total_s), total_s / TICK_COUNT)
        ticks: list[AxisTick] = []
        for part in linear:
            number = int((part.start - self.origin) / step)
            while (at := self.origin + number * step) <= part.end and len(ticks) <= 2 * TICK_COUNT:
                if at >= part.start:
                    ticks.append(AxisTick(self.position(at), format_two_units(at - self.origin)))
                number += 1
        return ticks


def find_idle_gaps(started: float, ended: float, periods: Iterable[Period]) -> list[tuple[float, float]]:
    """Return the gaps to fold: those longer than the longest time in which something was active."""
    changes: list[tuple[float, int]] = [(started, 0), (ended, 0)]
    for period in periods:
        weight = 1 if period.kind in ACTIVE_KINDS else 0
        end = ended if period.end is None else period.end
        if period.kind != "control" and end > started and period.start < ended:
            changes += ((max(period.start, started), weight), (min(end, ended), -weight))
    changes.sort(key=lambda change: (change[0], -change[1]))  # what starts at once is active without a gap
    gaps: list[tuple[float, float]] = []
    active, active_since, longest = 0, started, 0.0
    previous = started
    for at, change in changes:
        if active == 0 and at > previous:
            gaps.append((previous, at))
        was_active, active = active, active + change
        if was_active == 0 and active:
            active_since = at
        elif was_active and active == 0:
            longest = max(longest, at - active_since)
        previous = at
    shortest = max(MIN_FOLDED_S, longest)
    return [gap for gap in gaps if gap[1] - gap[0] > shortest]
