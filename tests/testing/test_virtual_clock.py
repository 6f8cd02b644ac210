"""The virtual clock skips the time in which nothing happens, and no other."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nerve import BashNode, FunctionNode, Limits, Queue, Retry, Session, WorkflowContext
from nerve.agents.provider import TurnFinished
from nerve.core.nodes.context import ExecutionContext
from nerve.errors import LimitReached
from nerve.testing import ScriptedProvider, TestSession, VirtualClock, test_session, virtual_clock

DAY = 86_400.0
START = datetime(2026, 1, 1, tzinfo=UTC)


async def run_body(session: TestSession, body: Any, **options: Any) -> Any:
    session.workflow(body, id="body")
    return await (await session.start("body", **options)).wait()


async def test_a_sleep_of_thirty_days_takes_thirty_days_of_the_clock() -> None:
    async def body(ctx: WorkflowContext) -> str:
        began = ctx.now()
        await ctx.sleep(30 * DAY)
        return str(ctx.now() - began)

    async with test_session(start=START) as s:
        s.workflow(body)
        run = await s.start("body")
        assert await run.wait() == "30 days, 0:00:00"
        assert s.clock.now == START + timedelta(days=30)
        assert s.clock.elapsed == timedelta(days=30)
        assert (run.started_at, run.completed_at) == (START, START + timedelta(days=30))
        times = {event.event_type: event.timestamp for event in run.events}
        assert times["timer_started"] == START
        assert times["timer_fired"] == times["workflow_completed"] == START + timedelta(days=30)


async def test_a_thousand_sleeps_follow_each_other() -> None:
    async def body(ctx: WorkflowContext) -> None:
        for _ in range(1000):
            await ctx.sleep(DAY)

    async with test_session() as s:
        await run_body(s, body)
        assert s.clock.elapsed == timedelta(days=1000)


async def test_the_clock_jumps_to_the_next_timer_of_any_run() -> None:
    order: list[str] = []

    async def body(ctx: WorkflowContext, days: int) -> None:
        await ctx.sleep(days * DAY)
        order.append(f"{days} at {s.clock.elapsed.days}")

    async with test_session() as s:
        s.workflow(body)
        runs = [await s.start("body", days) for days in (3, 1, 2)]
        for run in runs:
            await run.wait()
    assert order == ["1 at 1", "2 at 2", "3 at 3"]


async def test_backoffs_are_skipped() -> None:
    async with test_session(fakes={"fetch": [OSError("1"), OSError("2"), "a page"]}) as s:
        FunctionNode("fetch", s, lambda context: None, retry=Retry(3, delay=3600, cap=DAY))

        async def body(ctx: WorkflowContext) -> Any:
            return (await ctx.run("fetch"))["output"]

        assert await run_body(s, body) == "a page"
        assert s.clock.elapsed == timedelta(hours=3)


@pytest.mark.parametrize("wait", ["gate", "signal", "message", "timeout"])
async def test_every_wait_with_a_deadline_times_out_on_the_clock(wait: str) -> None:
    async def body(ctx: WorkflowContext) -> str:
        try:
            match wait:
                case "gate":
                    await ctx.gate("Continue?", timeout=2 * DAY)
                case "signal":
                    await ctx.wait_signal("shipped", timeout=2 * DAY)
                case "message":
                    await ctx.receive("orders", timeout=2 * DAY)
                case _:
                    async with ctx.timeout(2 * DAY):
                        await ctx.gate("Continue?")
        except TimeoutError:
            return "timed out"
        return "not timed out"

    async with test_session() as s:
        assert await run_body(s, body) == "timed out"
        assert s.clock.elapsed == timedelta(days=2)


async def test_a_test_answers_a_gate_before_its_deadline() -> None:
    async def body(ctx: WorkflowContext) -> Any:
        await ctx.sleep(DAY)
        return await ctx.gate("Continue?", timeout=DAY)

    async with test_session() as s:
        s.workflow(body)
        run = await s.start("body")
        await run.next_gate()
        await run.answer("yes")
        assert await run.wait() == "yes"
        assert s.clock.elapsed == timedelta(days=1)


async def test_the_timeout_of_a_step_fires_while_its_fake_waits_for_the_clock() -> None:
    async def hang(input: Any) -> None:
        await s.clock.sleep(float("inf"))

    async with test_session(fakes={"slow": hang, "quiet": hang}) as s:
        FunctionNode("slow", s, lambda context: None, timeout=600)
        FunctionNode("quiet", s, lambda context: None, idle_timeout=300)

        async def body(ctx: WorkflowContext) -> list[str]:
            errors = []
            for name in ("slow", "quiet"):
                with pytest.raises(TimeoutError) as raised:
                    await ctx.run(name)
                errors.append(str(raised.value))
            return errors

        assert await run_body(s, body) == [
            "node 'slow' timed out after 600 s",
            "node 'quiet' silent for 300 s",
        ]
        assert s.clock.elapsed == timedelta(minutes=15)


async def test_a_limit_on_wall_time_counts_backoffs_but_not_waits() -> None:
    async with test_session(fakes={"fetch": OSError("no route")}) as s:
        FunctionNode("fetch", s, lambda context: None, retry=Retry(None, delay=60, factor=1))

        async def body(ctx: WorkflowContext) -> None:
            await ctx.sleep(DAY)
            await ctx.run("fetch")

        with pytest.raises(LimitReached, match="wall_time=3600"):
            await run_body(s, body, limits=Limits(wall_time=3600))
        assert s.clock.elapsed == timedelta(days=1, hours=1)


async def test_a_child_run_and_its_timeout_follow_the_clock() -> None:
    async def child(ctx: WorkflowContext) -> None:
        await ctx.sleep(10 * DAY)

    async def body(ctx: WorkflowContext) -> str:
        await ctx.run_workflow("child")
        try:
            async with ctx.timeout(DAY):
                await ctx.run_workflow("child")
        except TimeoutError:
            return "timed out"
        return "not timed out"

    async with test_session() as s:
        s.workflow(child)
        assert await run_body(s, body) == "timed out"
        assert s.clock.elapsed == timedelta(days=11)


async def test_the_rate_limit_of_a_provider_is_skipped() -> None:
    limited = TurnFinished("t", outcome="limited", resets_at=(START + timedelta(hours=5)).timestamp())
    agent = ScriptedProvider([limited, "done"])
    async with test_session(start=START, providers={"agent": agent}) as s:
        s.load("name: ask\ndescription: x\nprovider: agent\nnodes:\n  - {id: a, prompt: hello}")
        run = await s.start("ask")
        assert await run.wait() == "done"
        assert s.clock.elapsed == timedelta(hours=5)


async def test_the_rate_of_a_queue_is_skipped() -> None:
    async with test_session(queues=[Queue("emails", rate="1/min")]) as s:

        @s.step(queue="emails")
        async def send(number: int) -> int:
            return number

        async def body(ctx: WorkflowContext) -> list[int]:
            return await asyncio.gather(*(send(number) for number in range(4)))

        assert await run_body(s, body) == [0, 1, 2, 3]
        assert s.clock.elapsed == timedelta(minutes=3)


@pytest.mark.parametrize("kind", ["thread", "task", "command"])
async def test_a_step_that_takes_real_time_is_waited_for(kind: str, tmp_path: Path) -> None:
    went_on = threading.Event()
    elapsed: list[timedelta] = []

    def work_in_thread(context: ExecutionContext) -> None:
        went_on.wait(30)

    async def work_in_task(context: ExecutionContext) -> None:
        await asyncio.to_thread(went_on.wait, 30)

    async def release() -> None:
        # Long for the clock, which could have jumped many times meanwhile.
        await asyncio.sleep(0.05)
        elapsed.append(s.clock.elapsed)
        went_on.set()
        (tmp_path / "go").touch()

    async def body(ctx: WorkflowContext) -> None:
        await ctx.run("work", timeout=3600)

    async def other(ctx: WorkflowContext) -> None:
        await ctx.sleep(30 * DAY)

    async with test_session(project=tmp_path) as s:
        if kind == "command":
            BashNode("work", s, "while [ ! -e go ]; do sleep 0.01; done", cwd=str(tmp_path))
        else:
            FunctionNode("work", s, work_in_thread if kind == "thread" else work_in_task)
        s.workflow(body)
        s.workflow(other)
        runs = [await s.start("body"), await s.start("other")]
        await release()
        for run in runs:
            await run.wait()
        assert elapsed == [timedelta(0)]
        assert s.clock.elapsed == timedelta(days=30)


async def test_the_timeout_of_a_step_that_hangs_for_real_fires_in_real_time() -> None:
    async def hang(context: ExecutionContext) -> None:
        await asyncio.Event().wait()

    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.run("hang", timeout=0.05)
        except TimeoutError:
            return "timed out"
        return "not timed out"

    async with test_session() as s:
        FunctionNode("hang", s, hang)
        assert await run_body(s, body) == "timed out"
        assert s.clock.elapsed == timedelta(seconds=0.05)


async def test_a_jump_by_hand_lets_the_timeout_of_a_step_fire_that_hangs_for_real() -> None:
    started = asyncio.Event()

    async def hang(context: ExecutionContext) -> None:
        started.set()
        await asyncio.Event().wait()

    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.run("hang", timeout=3600)
        except TimeoutError:
            return "timed out"
        return "not timed out"

    async with test_session(skip=False) as s:
        FunctionNode("hang", s, hang)
        s.workflow(body)
        run = await s.start("body")
        await started.wait()
        s.clock.jump(hours=1)
        assert await run.wait() == "timed out"


async def test_a_gate_without_a_deadline_costs_nothing() -> None:
    checks: list[float] = []

    def count_check() -> bool:
        checks.append(time.monotonic())
        return True

    async def body(ctx: WorkflowContext) -> Any:
        await ctx.sleep(DAY)
        return await ctx.gate("Continue?")

    async with test_session() as s:
        with s.clock.observe(count_check):
            s.workflow(body)
            run = await s.start("body")
            await run.next_gate()
            before = len(checks)
            await asyncio.sleep(0.05)
            assert len(checks) == before
            await run.answer("yes")
            assert await run.wait() == "yes"


async def test_a_frozen_clock_moves_only_by_hand() -> None:
    days: list[int] = []

    async def body(ctx: WorkflowContext) -> None:
        for _ in range(3):
            await ctx.sleep(DAY)
            days.append(s.clock.elapsed.days)

    async with test_session(skip=False) as s:
        s.workflow(body)
        run = await s.start("body")
        await asyncio.sleep(0.01)
        assert s.clock.elapsed == timedelta(0)
        await s.clock.advance(days=2, hours=12)
        assert days == [1, 2]
        assert s.clock.elapsed == timedelta(days=2.5)
        s.clock.skip = True
        await run.wait()
        assert days == [1, 2, 3]
        with pytest.raises(ValueError, match="cannot go back, got -1 seconds"):
            await s.clock.advance(-1)


async def test_a_timer_that_is_due_already_fires_on_a_frozen_clock(tmp_path: Path) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)
        await ctx.sleep(0)

    async with test_session(store=tmp_path / "n.db", skip=False) as s:
        s.workflow(body)
        await s.start("body")
        await s.clock.advance()
        clock = s.clock
    clock.jump(days=1)
    async with test_session(store=tmp_path / "n.db", clock=clock) as s:
        s.workflow(body)
        (run,) = await s.recover()
        await run.wait()
        assert clock.elapsed == timedelta(days=1)


async def test_a_run_in_a_file_continues_in_a_later_session_on_the_same_clock(tmp_path: Path) -> None:
    async def body(ctx: WorkflowContext) -> str:
        began = ctx.now()
        await ctx.gate("Continue?")
        await ctx.sleep(30 * DAY)
        return str(ctx.now() - began)

    async with test_session(store=tmp_path / "n.db") as s:
        s.workflow(body)
        run = await s.start("body")
        await run.next_gate()
        clock = s.clock
    await clock.advance(days=5)
    async with test_session(store=tmp_path / "n.db", clock=clock) as s:
        s.workflow(body)
        (run,) = await s.recover()
        await run.answer("yes")
        assert await run.wait() == "35 days, 0:00:00"


async def test_a_parked_run_is_woken_at_its_deadline(tmp_path: Path) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await ctx.sleep(30 * DAY)

    async with test_session(store=tmp_path / "n.db", skip=False) as s:
        s.workflow(body)
        await s.start("body")
        await s.clock.advance()
        clock = s.clock
    async with test_session(store=tmp_path / "n.db", clock=clock) as s:
        s.workflow(body)
        (run,) = await s.recover()
        assert run.run_id not in s.engine.executors
        clock.skip = True
        await run.wait()
        assert clock.elapsed == timedelta(days=30)


async def test_two_clocks_on_one_event_loop_do_not_wait_for_each_other() -> None:
    async def body(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)

    async with test_session() as first, test_session() as second:
        await asyncio.gather(run_body(first, body), run_body(second, body))
        assert first.clock.elapsed == second.clock.elapsed == timedelta(days=1)


async def test_the_log_names_a_test_that_polls_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(virtual_clock, "BUSY_TURNS_BEFORE_WARNING", 100)

    async def body(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)

    async with test_session() as s:
        s.workflow(body)
        run = await s.start("body")
        with caplog.at_level(logging.WARNING, "nerve"):
            for _ in range(300):
                await asyncio.sleep(0)
        assert not run.is_complete
        assert "The virtual clock does not move" in caplog.text
        await run.wait()


def test_a_loop_that_hides_its_callbacks_is_rejected() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def open_session() -> None:
        async with test_session():
            pass

    loop = uvloop.new_event_loop()
    try:
        with pytest.raises(RuntimeError, match=r"needs an event loop of asyncio, got uvloop"):
            loop.run_until_complete(open_session())
    finally:
        loop.close()


async def test_runs_are_listed_in_the_order_of_their_start_although_time_stands_still() -> None:
    async def body(ctx: WorkflowContext) -> None:
        pass

    async with test_session() as s:
        s.workflow(body)
        runs = [await s.start("body") for _ in range(20)]
        assert [run.run_id for run in s.runs()] == [run.run_id for run in reversed(runs)]
        assert s.runs(since="1d") == s.runs()
        await s.clock.advance(days=2)
        assert s.runs(since="1d") == []


async def test_a_clock_in_a_plain_session_needs_no_test_session() -> None:
    clock = VirtualClock(START)

    async def body(ctx: WorkflowContext) -> None:
        await ctx.sleep(DAY)

    async with Session(clock=clock) as session:
        with clock.observe(session.engine.is_at_rest):
            session.workflow(body)
            await (await session.start("body")).wait()
    assert clock.elapsed == timedelta(days=1)
