"""Runs that only wait are evicted from memory, and rebuilt when something happens to them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import register, until
from nerve import Session, WorkflowContext, WorkflowState
from nerve.engine import idle_runs
from nerve.testing import VirtualClock

pytestmark = pytest.mark.local("looks at executors")


@pytest.fixture(autouse=True)
def keep_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 2)


async def park(session: Session, count: int, workflow: str = "asking") -> list[Any]:
    runs = [await session.start(workflow) for _ in range(count)]
    for run in runs:
        await until(lambda run=run: run.state is WorkflowState.WAITING)
    return runs


async def test_an_evicted_run_lists_its_gate_and_accepts_an_answer(file: Path) -> None:
    done: list[str] = []
    async with Session(store=file) as session:
        register(session, done)
        runs = await park(session, 6)
        gone = [run for run in runs if run.run_id not in session.engine.executors]
        assert len(gone) >= 3
        assert [gate.prompt for gate in gone[0].pending_gates] == ["Go on?"]
        for number, run in enumerate(runs):
            await run.answer(f"answer {number}")
        assert [await run.wait() for run in runs] == [[1, f"answer {n}", 2] for n in range(6)]
    assert sorted(done) == ["/work"] * 6 + ["/work[2]"] * 6


async def test_the_handle_of_an_evicted_run_does_not_keep_its_executor(file: Path) -> None:
    async with Session(store=file) as session:
        register(session, [])
        handles, executors = [], {}
        for _ in range(6):
            handles.append(run := await session.start("asking"))
            executors[run.run_id] = weakref.ref(session.engine.executors[run.run_id])
        await until(lambda: len(session.engine.executors) == 2)
        evicted = [executors[run.run_id] for run in handles if run.run_id not in session.engine.executors]
        await until(lambda: gc.collect() >= 0 and not any(executor() for executor in evicted))


async def test_a_body_runs_its_finally_on_eviction_and_again_at_its_end(file: Path) -> None:
    left: list[str] = []
    async with Session(store=file) as session:

        @session.workflow
        async def asking(ctx: WorkflowContext) -> Any:
            try:
                return await ctx.gate("Go on?")
            except Exception:
                left.append("caught")
                raise
            finally:
                left.append("left")

        runs = await park(session, 3)
        await until(lambda: left == ["left"])
        await runs[0].answer("yes")
        assert await runs[0].wait() == "yes"
    assert left[:2] == ["left", "left"]
    assert "caught" not in left


async def test_a_run_with_a_second_task_is_not_evicted(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def busy(ctx: WorkflowContext) -> Any:
            waiting = asyncio.ensure_future(ctx.gate("Go on?"))
            return await waiting

        runs = await park(session, 5, "busy")
        assert all(run.run_id in session.engine.executors for run in runs)


async def test_a_timer_brings_a_run_back_into_memory(file: Path) -> None:
    async with Session(store=file) as session:

        @session.workflow
        async def timed(ctx: WorkflowContext) -> Any:
            try:
                return await ctx.gate("Go on?", timeout=0.2)
            except TimeoutError:
                return "too late"

        runs = await park(session, 4, "timed")
        assert [await run.wait() for run in runs] == ["too late"] * 4


async def test_a_session_in_memory_evicts_no_runs() -> None:
    session = Session()
    register(session, [])
    runs = await park(session, 6)
    assert all(run.run_id in session.engine.executors for run in runs)


async def test_recovery_does_not_load_waiting_runs_until_they_are_answered(file: Path) -> None:
    async with Session(store=file) as session:
        register(session, [])
        await park(session, 3)
    done: list[str] = []
    async with Session(store=file) as session:
        register(session, done)
        runs = await session.recover()
        assert session.engine.executors == {}
        assert [run.state for run in runs] == [WorkflowState.WAITING] * 3
        runs[0].answer_gate("yes")
        assert await runs[0].wait() == [1, "yes", 2]
    assert done == ["/work[2]"]


async def test_a_timer_that_expired_while_the_process_was_down_fires_once(file: Path) -> None:
    await check_expired_timer(file)


async def test_a_timer_in_postgresql_that_expired_without_an_owner_fires_once(postgresql_url: str) -> None:
    await check_expired_timer(postgresql_url)


async def check_expired_timer(store: Path | str) -> None:
    def timers(session: Session, woken: list[str]) -> None:
        @session.workflow
        async def sleepy(ctx: WorkflowContext) -> Any:
            await ctx.sleep(3600)
            woken.append("woken")
            return "slept"

    clock = VirtualClock(skip=False)
    async with Session(store=store, clock=clock) as session:
        timers(session, [])
        run = await session.start("sleepy")
        await until(lambda: run.state is WorkflowState.WAITING)
    clock.jump(hours=1)
    woken: list[str] = []
    async with Session(store=store, clock=clock) as session:
        timers(session, woken)
        (run,) = await session.recover()
        assert await run.wait() == "slept"
        assert [event.event_type for event in run.events].count("timer_fired") == 1
    assert woken == ["woken"]
