"""W5: what a run that waits at a gate costs in memory."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.measure import Line, at_most, child, folder, in_turns

RUNS = 10_000


def measure(rounds: int, place: Path) -> list[Line]:
    def kib(handles: str) -> float:
        with folder(place) as here:
            return float(child("parked", here / "store.db", RUNS, handles))

    dropped, kept = in_turns(min(rounds, 5), lambda: kib("dropped"), lambda: kib("kept"))
    what = f"{RUNS} runs parked at a gate, beyond the idle process"
    return [
        Line("W5", what, "KiB each", median(dropped), target=at_most(dropped, 4, "KiB")),
        Line("W5", "the same, their handles kept", "KiB each", median(kept), target=at_most(kept, 4, "KiB")),
    ]
