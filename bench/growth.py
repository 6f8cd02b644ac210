"""Growth: the cost of a step must not depend on how many came before it."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.measure import Line, Pair, at_most
from bench.w1_sequence import compare

SIZES = 100, 1_000, 10_000


def measure(rounds: int, place: Path) -> list[Line]:
    taken = {size: Pair([], []) for size in SIZES}
    for _ in range(min(rounds, 5)):
        for size, pair in taken.items():
            # Short runs are repeated, so that the size alone makes the difference.
            for _ in range(max(1, 1_000 // size)):
                once = compare(1, place, size)
                pair.ours.extend(once.ours)
                pair.limit.extend(once.limit)
    first = median(taken[SIZES[0]].ours)
    return [line(size, pair, first) for size, pair in taken.items()]


def line(size: int, pair: Pair, first: float) -> Line:
    ours, limit = pair.medians
    grown = at_most([figure / first for figure in pair.ours], 1.25, f"that of {SIZES[0]}")
    what = f"{size} steps in one run; bare commits"
    return Line(
        "growth", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio, None if size == SIZES[0] else grown
    )
