"""Opening and answering a gate of a run costs the same however many other gates are open."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import nerve
from nerve import Session
from nerve.api import answer_gate, models
from nerve.core.workflow.run import WorkflowRun

pytestmark = pytest.mark.local("measures this process")

SOURCE_FOLDER = str(Path(nerve.__file__).parent)
FEW, MANY = 25, 250
Answer = Callable[[Session, WorkflowRun, str], Awaitable[Any]]


class LineCount:
    """The number of executed lines of the product; an iteration of a comprehension counts as a line."""

    def __init__(self) -> None:
        self.lines = 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE_FOLDER):
            return None
        self.lines += event == "line"
        return self.trace


@contextmanager
def count_lines() -> Iterator[LineCount]:
    count, previous = LineCount(), sys.gettrace()
    sys.settrace(count.trace)
    try:
        yield count
    finally:
        sys.settrace(previous)


def project(file: Path) -> Session:
    session = Session(store=file)

    @session.workflow
    async def gates(ctx: Any) -> int:
        asked = (ctx.gate(f"Gate {number}?", timeout=3600 + number) for number in range(ctx.input))
        return len(await asyncio.gather(*asked))

    return session


async def start(session: Session, number: int) -> WorkflowRun:
    run = await session.start("gates", number)
    while len(run.run_state.gates) < number:
        await run.wait_for_change()
    return run


async def answer_by_run(session: Session, run: WorkflowRun, gate_id: str) -> None:
    await run.answer("yes", gate_id)


async def answer_by_path(session: Session, run: WorkflowRun, gate_id: str) -> None:
    await run.answer("yes", next(gate.path for gate in run.run_state.gates.values()))


async def answer_by_prefix(session: Session, run: WorkflowRun, gate_id: str) -> None:
    await run.answer("yes", gate_id[:7])


async def answer_by_api(session: Session, run: WorkflowRun, gate_id: str) -> None:
    await answer_gate.answer(session, models.AnswerRequest(gate=gate_id, answer="yes"))


async def lines_to_answer(session: Session, run: WorkflowRun, answer: Answer) -> float:
    """Return the lines executed for each answer."""
    gate_ids = [gate.gate_id for gate in run.pending_gates]
    with count_lines() as count:
        for gate_id in gate_ids:
            await answer(session, run, gate_id)
    assert await run.wait() == len(gate_ids)
    return count.lines / len(gate_ids)


def is_about_equal(few: float, many: float) -> bool:
    # Work for each other gate would add more than 200 lines to the hundreds that an answer takes.
    return many < few + 100


async def test_opening_a_gate_costs_the_same_with_many_open(tmp_path: Path) -> None:
    lines = []
    for number in (FEW, MANY):
        async with project(tmp_path / f"{number}.db") as session:
            with count_lines() as count:
                await start(session, number)
            lines.append(count.lines / number)
    assert is_about_equal(*lines), lines


@pytest.mark.parametrize("answer", [answer_by_run, answer_by_path, answer_by_prefix, answer_by_api])
async def test_answering_a_gate_costs_the_same_with_many_open(tmp_path: Path, answer: Answer) -> None:
    lines = []
    for number in (FEW, MANY):
        async with project(tmp_path / f"{number}.db") as session:
            lines.append(await lines_to_answer(session, await start(session, number), answer))
    assert is_about_equal(*lines), lines


async def test_answering_a_gate_after_a_restart_costs_the_same_with_many_open(tmp_path: Path) -> None:
    lines = []
    for number in (FEW, MANY):
        async with project(tmp_path / f"{number}.db") as session:
            await start(session, number)
        async with project(tmp_path / f"{number}.db") as session:
            [run] = await session.recover()
            lines.append(await lines_to_answer(session, run, answer_by_run))
    assert is_about_equal(*lines), lines


async def test_answering_a_gate_of_a_paused_run_after_a_restart_costs_the_same_with_many_open(
    tmp_path: Path,
) -> None:
    lines = []
    for number in (FEW, MANY):
        async with project(tmp_path / f"{number}.db") as session:
            run = await start(session, number)
            await run.pause()
        async with project(tmp_path / f"{number}.db") as session:
            again = session.get_workflow_run(run.run_id)
            assert again is not None
            gate_ids = [gate.gate_id for gate in again.pending_gates]
            await again.answer("yes", gate_ids[0])  # loads the run
            with count_lines() as count:
                for gate_id in gate_ids[1:]:
                    await again.answer("yes", gate_id)
            lines.append(count.lines / (number - 1))
            await again.resume()
            assert await again.wait() == number
    assert is_about_equal(*lines), lines
