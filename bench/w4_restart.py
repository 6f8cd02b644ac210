"""W4: a process is killed behind many settled steps; how soon a new one runs the next step."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from bench.measure import Line, at_most, child, folder, paired

STEPS = 1000


def measure(rounds: int, place: Path) -> list[Line]:
    with folder(place) as killed:
        child("restart", killed / "store.db", STEPS, "die", time.time())

        def after(manner: str) -> float:
            with folder(place) as here:
                shutil.copytree(killed, here, dirs_exist_ok=True)
                said = child("restart", here / "store.db", STEPS, manner, time.time())
            return float(said)

        pair = paired(rounds, lambda: after("go-on"), lambda: after("read"))
    ours, limit = pair.medians
    what = f"killed behind {STEPS} steps: process start to the next step, less imports; bare read"
    return [Line("W4", what, "ms", ours, limit, pair.ratio, at_most(pair.ours, 300, "ms"))]
