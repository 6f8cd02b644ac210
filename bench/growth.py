"""Growth: the cost of a step must not depend on the number of earlier steps."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.measure import Line, Pair, at_most
from bench.w1_sequence import compare_steps

SIZES = 100, 1_000, 10_000


def measure(rounds: int, directory: Path) -> list[Line]:
    pairs = {size: Pair([], []) for size in SIZES}
    for _ in range(min(rounds, 5)):
        for size, pair in pairs.items():
            # Short runs are repeated, so that only the size differs.
            for _ in range(max(1, 1_000 // size)):
                once = compare_steps(1, directory, size)
                pair.ours.extend(once.ours)
                pair.limit.extend(once.limit)
    first = median(pairs[SIZES[0]].ours)
    return [make_line(size, pair, first) for size, pair in pairs.items()]


def make_line(size: int, pair: Pair, first: float) -> Line:
    ours, limit = pair.medians
    grown = at_most([figure / first for figure in pair.ours], 1.25, f"that of {SIZES[0]}")
    what = f"{size} steps in one run; bare commits"
    return Line(
        "growth", what, "µs a step", ours * 1e6, limit * 1e6, pair.ratio, None if size == SIZES[0] else grown
    )
