"""Gates: the cost of an answer must not depend on how many gates of the run are open."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.measure import Line, at_most, measure_pair, temporary_folder
from bench.workflows import make_session

FEW, MANY = 1_000, 8_000


async def time_answers(file: Path, number: int) -> float:
    """Return the CPU seconds of an answer to a run with that many open gates, after a restart."""
    async with make_session(file) as opened:
        run = await opened.start("ask_many", number)
        while len(run.run_state.gates) < number:
            await run.wait_for_change()
    async with make_session(file) as opened:
        [run] = await opened.recover()
        gate_ids = [gate.gate_id for gate in run.pending_gates]
        began = time.process_time()
        for gate_id in gate_ids:
            await run.answer("yes", gate_id)
        spent = time.process_time() - began
        await run.wait()
    return spent / number


def measure(rounds: int, directory: Path) -> list[Line]:
    def cpu_of_answer(number: int) -> float:
        with temporary_folder(directory) as run_directory:
            return asyncio.run(time_answers(run_directory / "store.db", number))

    pair = measure_pair(min(rounds, 5), lambda: cpu_of_answer(MANY), lambda: cpu_of_answer(FEW))
    many, few = pair.medians
    what = f"CPU of an answer after a restart, {MANY:,} gates open; {FEW:,} gates open"
    target = at_most(pair.ratios, 1.25)
    return [Line("gates", what, "ms an answer", many * 1e3, few * 1e3, pair.ratio, target)]
