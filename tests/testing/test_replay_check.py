"""assert_replays compares the code of a workflow with the journal of a run, and changes nothing."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nerve import FunctionNode, Limits, WorkflowContext
from nerve.core.workflow.run import WorkflowRun
from nerve.errors import Rejected
from nerve.testing import TestSession, assert_replays, test_session

Body = Callable[[WorkflowContext], Any]
executed: list[Any] = []


@pytest.fixture(autouse=True)
def _no_steps() -> None:
    executed.clear()


def add_nodes(session: TestSession) -> None:
    for name in ("first", "second"):
        FunctionNode(name, session, lambda context: executed.append(context.input) or "done")


async def start_body(session: TestSession, body: Body, **options: Any) -> WorkflowRun:
    add_nodes(session)
    session.workflow(body, id="body")
    return await session.start("body", **options)


def change_code(session: TestSession, body: Body) -> None:
    session.delete_workflow("body")
    session.workflow(body, id="body")


async def check_unchanged(session: TestSession, run: WorkflowRun) -> None:
    """Check that a run replays, and that the check executes and writes nothing."""
    steps, rows, state = list(executed), list(session.engine.store.events(run.run_id)), run.state
    elapsed = session.clock.elapsed
    await assert_replays(run)
    assert executed == steps
    assert list(session.engine.store.events(run.run_id)) == rows
    assert (run.state, session.clock.elapsed) == (state, elapsed)


async def two_steps(ctx: WorkflowContext) -> Any:
    await ctx.run("first", 1)
    await ctx.sleep(86_400)
    return (await ctx.run("second", 2))["output"]


async def test_a_completed_run_replays() -> None:
    async with test_session() as s:
        run = await start_body(s, two_steps)
        await run.wait()
        await check_unchanged(s, run)
        assert executed == [1, 2]


async def fail(ctx: WorkflowContext) -> None:
    await ctx.run("first", 1)
    raise ValueError("no luck")


async def reject(ctx: WorkflowContext) -> None:
    await ctx.run("first", 1)
    raise Rejected("not wanted")


@pytest.mark.parametrize("body", [fail, reject])
async def test_a_failed_or_rejected_run_replays(body: Body) -> None:
    async with test_session() as s:
        run = await start_body(s, body)
        await run.wait_until_ended()
        await check_unchanged(s, run)


async def ask(ctx: WorkflowContext) -> Any:
    await ctx.run("first", 1)
    answer = await ctx.gate("Continue?")
    return (await ctx.run("second", answer))["output"]


async def test_a_waiting_run_replays_and_still_waits() -> None:
    async with test_session() as s:
        run = await start_body(s, ask)
        await run.next_gate()
        await check_unchanged(s, run)
        await run.answer("yes")
        assert await run.wait() == "done"
        await check_unchanged(s, run)


async def clean_up(ctx: WorkflowContext) -> None:
    try:
        await ctx.gate("Continue?")
    finally:
        async with ctx.cleanup():
            await ctx.run("second", 2)


async def report_the_end(ctx: WorkflowContext) -> None:
    try:
        await ctx.gate("Continue?")
    finally:
        ctx.emit("left")


@pytest.mark.parametrize("body", [ask, clean_up, report_the_end])
async def test_a_stopped_run_replays(body: Body) -> None:
    async with test_session() as s:
        run = await start_body(s, body)
        await run.next_gate()
        await run.stop("enough")
        await check_unchanged(s, run)


async def leave_a_task_behind(ctx: WorkflowContext) -> str:
    async def report() -> None:
        try:
            await ctx.gate("Report?")
            ctx.emit("reported")
        finally:
            async with ctx.cleanup():
                await ctx.run("second", 2)

    task = asyncio.ensure_future(report())
    await ctx.gate("Return?")
    return f"returned, report {'ended' if task.done() else 'left behind'}"


async def test_a_run_whose_function_returns_while_it_is_stopped_replays() -> None:
    async with test_session() as s:
        run = await start_body(s, leave_a_task_behind)
        while len(run.pending_gates) < 2:
            await run.wait_for_change()
        gates = {gate.prompt: gate.gate_id for gate in run.pending_gates}
        await run.pause()
        for prompt in ("Return?", "Report?"):
            await run.answer("yes", gates[prompt])
        await run.stop("enough")
        assert [event.event_type for event in run.events][-3:] == [
            *("gate_answered", "gate_answered", "workflow_cancelled")
        ]
        await check_unchanged(s, run)


async def loop_forever(ctx: WorkflowContext) -> None:
    while True:
        await ctx.run("first", 1)


async def test_a_run_that_reached_a_limit_replays() -> None:
    async with test_session() as s:
        run = await start_body(s, loop_forever, limits=Limits(steps=3))
        await run.wait_until_ended()
        assert run.run_state.error_type == "LimitReached"
        await check_unchanged(s, run)


async def race(ctx: WorkflowContext) -> Any:
    ctx.emit("began", {"at": str(ctx.now())})
    tasks = [asyncio.ensure_future(ctx.run(name, ctx.random())) for name in ("first", "second")]
    results = [(await task)["output"] for task in asyncio.as_completed(tasks)]
    with suppress(TimeoutError):
        async with ctx.timeout(60):
            await ctx.wait_signal("never")
    ctx.tag(stage="late")
    return [results, await ctx.run_workflow("child"), ctx.new_id(), ctx.patched("new")]


async def child(ctx: WorkflowContext) -> str:
    await ctx.sleep(10)
    return "from the child"


async def test_tasks_timeouts_children_and_side_effects_replay() -> None:
    async with test_session() as s:
        s.workflow(child)
        run = await start_body(s, race)
        await run.wait()
        await check_unchanged(s, run)


async def wait_for_child(ctx: WorkflowContext) -> Any:
    return await ctx.run_workflow("ask")


async def test_a_run_that_waits_for_a_child_replays_and_the_child_goes_on() -> None:
    async with test_session() as s:
        s.workflow(ask)
        run = await start_body(s, wait_for_child)
        await run.next_gate()
        await check_unchanged(s, run)
        await run.answer("yes")
        assert await run.wait() == "done"


async def test_a_body_that_waits_for_something_of_its_own_replays() -> None:
    async def body(ctx: WorkflowContext) -> str:
        await ctx.run("first", 1)
        await asyncio.sleep(0.01)
        return "done"

    async with test_session() as s:
        run = await start_body(s, body)
        await run.wait()
        await check_unchanged(s, run)


async def other_input(ctx: WorkflowContext) -> None:
    await ctx.run("first", 100)


async def other_order(ctx: WorkflowContext) -> None:
    await ctx.run("second", 2)
    await ctx.run("first", 1)


async def ends_early(ctx: WorkflowContext) -> str:
    await ctx.run("first", 1)
    return "done"


async def one_more_step(ctx: WorkflowContext) -> Any:
    await two_steps(ctx)
    return (await ctx.run("first", 3))["output"]


async def other_result(ctx: WorkflowContext) -> Any:
    return [await two_steps(ctx)]


async def raises(ctx: WorkflowContext) -> None:
    await two_steps(ctx)
    raise KeyError("amount")


async def other_seconds(ctx: WorkflowContext) -> None:
    await ctx.run("first", 1)
    await ctx.sleep(60)


async def never_ends(ctx: WorkflowContext) -> None:
    await two_steps(ctx)
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("body", "difference"),
    [
        (other_input, "/first: the journal has 1, the code now requests 100"),
        (
            other_order,
            "/first: the journal has node_started (event 2), the code now requests /second before it",
        ),
        (ends_early, '/sleep: the journal has timer_started (event 4), the code now returns "done"'),
        (one_more_step, '/: the run returns "done" in the journal, the code now requests /first[2]'),
        (other_result, '/: the run returns "done" in the journal, the code now returns ["done"]'),
        (raises, "/: the run returns \"done\" in the journal, the code now raises KeyError: 'amount'"),
        (other_seconds, '/sleep: the journal has {"seconds":86400}, the code now requests {"seconds":60}'),
        (never_ends, '/: the run returns "done" in the journal, the code now does not end'),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_difference_names_the_path_what_was_recorded_and_what_the_code_does(
    body: Body, difference: str
) -> None:
    async with test_session() as s:
        run = await start_body(s, two_steps)
        await run.wait()
        change_code(s, body)
        rows = list(s.engine.store.events(run.run_id))
        message = f"Run '{run.run_id}' does not replay: {difference}"
        with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
            await assert_replays(run, timeout=0.05)
        assert list(s.engine.store.events(run.run_id)) == rows
        assert executed == [1, 2]


async def test_changed_code_of_a_waiting_run_is_found_and_an_added_last_step_is_not_one() -> None:
    async def asks_another_question(ctx: WorkflowContext) -> None:
        await ctx.run("first", 1)
        await ctx.gate("Really?")

    async def asks_and_reports(ctx: WorkflowContext) -> None:
        await ask(ctx)
        await ctx.run("first", "report")

    async with test_session() as s:
        run = await start_body(s, ask)
        await run.next_gate()
        change_code(s, asks_another_question)
        with pytest.raises(AssertionError, match=r"/gate: the journal has .*Continue.* requests .*Really"):
            await assert_replays(run)
        change_code(s, asks_and_reports)
        await check_unchanged(s, run)
        s.delete_workflow("body")
        with pytest.raises(AssertionError, match="workflow 'body' not found"):
            await assert_replays(run)


async def test_a_store_kept_as_a_file_is_checked_against_later_code(tmp_path: Path) -> None:
    async with test_session(store=tmp_path / "golden.db") as s:
        run = await start_body(s, two_steps)
        await run.wait()
        waiting = await s.start("first", 7)
        await waiting.wait()
    shutil.copy(tmp_path / "golden.db", tmp_path / "copy.db")
    async with test_session(store=tmp_path / "copy.db") as s:
        add_nodes(s)
        s.workflow(two_steps, id="body")
        assert len(s.runs()) == 2
        for kept in s.runs():
            await check_unchanged(s, kept)
        assert s.clock.elapsed == timedelta(0)


async def test_a_run_that_is_not_in_the_store_is_an_error() -> None:
    async with test_session() as s:
        s.workflow(two_steps)
        with pytest.raises(ValueError, match="is not in the store of its session"):
            await assert_replays(WorkflowRun(s.workflows["two_steps"]))
