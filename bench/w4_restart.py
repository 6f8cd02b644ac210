"""W4: a process is killed after many settled steps; time until a new one runs the next step."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from bench.measure import Line, at_most, measure_pair, run_child, temporary_folder

STEPS = 1000


def measure(rounds: int, directory: Path) -> list[Line]:
    with temporary_folder(directory) as killed:
        run_child("restart", killed / "store.db", STEPS, "die", time.time())

        def restart_ms(mode: str) -> float:
            with temporary_folder(directory) as run_directory:
                shutil.copytree(killed, run_directory, dirs_exist_ok=True)
                output = run_child("restart", run_directory / "store.db", STEPS, mode, time.time())
            return float(output)

        pair = measure_pair(rounds, lambda: restart_ms("resume"), lambda: restart_ms("read"))
    ours, limit = pair.medians
    what = f"killed after {STEPS} steps: process start to the next step, less imports; bare read"
    return [Line("W4", what, "ms", ours, limit, pair.ratio, at_most(pair.ours, 300, "ms"))]
