"""W5: memory of a run that waits at a gate."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.measure import Line, at_most, measure_in_turns, run_child, temporary_folder

RUNS = 10_000


def measure(rounds: int, directory: Path) -> list[Line]:
    def kib_per_run(handles: str) -> float:
        with temporary_folder(directory) as run_directory:
            return float(run_child("parked", run_directory / "store.db", RUNS, handles))

    dropped, kept = measure_in_turns(
        min(rounds, 5), lambda: kib_per_run("dropped"), lambda: kib_per_run("kept")
    )
    what = f"{RUNS} runs waiting at a gate, beyond the idle process"
    return [
        Line("W5", what, "KiB each", median(dropped), target=at_most(dropped, 4, "KiB")),
        Line("W5", "the same, their handles kept", "KiB each", median(kept), target=at_most(kept, 4, "KiB")),
    ]
