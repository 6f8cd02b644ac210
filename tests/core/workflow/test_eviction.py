"""Eviction: a waiting run is unloaded from memory without visible effects."""

import asyncio

import pytest

from core.workflow.support import at_gate, counted, data_of, types, until, within
from nerve import FunctionNode, Session
from nerve.core.workflow import WorkflowState
from nerve.engine import idle_runs
from nerve.errors import GateNotOpen, RunHeld


async def ask(ctx):
    return await ctx.gate("Continue?")


async def choose(ctx):
    before = (await ctx.run("work", ctx.input))["output"]
    return [before, await ctx.gate("Which?", choices=["a", "b"])]


@pytest.fixture(autouse=True)
def small_memory(monkeypatch):
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 1)


async def evicted(session, fn, input=None):
    """Return a run of the workflow that was evicted."""
    if fn.__name__ not in session.workflows:
        session.workflow(fn)
    if "ask" not in session.workflows:
        session.workflow(ask)
    run = await session.start(fn.__name__, input)
    await until(lambda: run.state is WorkflowState.WAITING)
    for _ in range(2):
        await session.start("ask")
    await until(lambda: run.run_id not in session.engine.executors)
    return run


async def test_an_evicted_run_can_be_answered_and_another_one_stopped(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        runs = [await session.start("ask", number) for number in range(5)]
        await until(lambda: all(run.pending_gate for run in runs))
        await until(lambda: len(session.engine.executors) < 5)
        assert {run.state for run in runs} == {WorkflowState.WAITING}
        await within(runs[0].stop("enough"))
        await runs[1].answer("yes")
        assert await within(runs[1].wait()) == "yes"
        assert runs[0].state is WorkflowState.CANCELLED
        assert [run.pending_gate.prompt for run in runs[2:]] == ["Continue?"] * 3


async def test_an_evicted_body_runs_its_finally_and_user_code_cannot_catch_the_eviction(file):
    left = []

    async def careful(ctx):
        try:
            return await ctx.gate("Continue?")
        except Exception as error:
            left.append(error)
        finally:
            left.append("finally")

    async with Session("test", file) as session:
        session.workflow(careful), session.workflow(ask)
        run = await session.start("careful")
        await until(lambda: "gate_waiting" in types(run))
        await session.start("ask")
        await until(lambda: left == ["finally"])
        assert run.run_id not in session.engine.executors
        assert (run.state, run.pending_gate.prompt) == (WorkflowState.WAITING, "Continue?")
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
    assert left == ["finally", "finally"]


async def test_only_a_limited_number_of_waiting_runs_stays_in_memory(file, monkeypatch):
    monkeypatch.setattr(idle_runs, "MAX_IDLE_RUNS", 4)
    async with Session("test", file) as session:
        session.workflow(ask)
        runs = await asyncio.gather(*(session.start("ask", number) for number in range(40)))
        await until(lambda: all("gate_waiting" in types(run) for run in runs))
        await until(lambda: len(session.engine.executors) <= 8)


async def test_an_evicted_run_lists_its_gate_and_rejects_a_wrong_choice(file):
    async with Session("test", file) as session:
        work = counted(session, "work")
        run = await evicted(session, choose, 1)
        assert (run.pending_gate.path, run.pending_gate.choices) == ("/gate", ["a", "b"])
        with pytest.raises(ValueError, match="Invalid choice"):
            run.answer_gate("c")
        assert run.state is WorkflowState.WAITING
        run.answer_gate("a", run.pending_gate.gate_id)
        assert await within(run.wait()) == [1, "a"]
        assert work == [1]


async def test_only_one_of_two_answers_to_an_evicted_run_is_accepted(file):
    async with Session("test", file) as session:
        counted(session, "work")
        run = await evicted(session, choose, 1)
        outcomes = await asyncio.gather(run.answer("a"), run.answer("b"), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), GateNotOpen]
        assert await within(run.wait()) == [1, "a"]


async def test_an_evicted_run_receives_a_signal(file):
    async def listen(ctx):
        return await ctx.wait_signal("go")

    async with Session("test", file) as session:
        run = await evicted(session, listen)
        assert await run.signal("other") == 0
        assert await run.signal("go", 5) == 1
        assert await within(run.wait()) == 5


async def test_an_evicted_run_wakes_when_its_timer_is_due(file):
    async def nap(ctx):
        await ctx.sleep(0.3)
        return "awake"

    async with Session("test", file) as session:
        run = await evicted(session, nap)
        assert await within(run.wait()) == "awake"
        assert types(run).count("timer_fired") == 1


async def test_the_gate_of_an_evicted_run_times_out(file):
    async def impatient(ctx):
        try:
            return await ctx.gate("Continue?", timeout=0.3)
        except TimeoutError:
            return "late"

    async with Session("test", file) as session:
        run = await evicted(session, impatient)
        assert await within(run.wait()) == "late"
        assert data_of(run, "gate_timeout")[0]["timeout"] == 0.3


async def test_an_evicted_run_can_be_paused_answered_and_resumed(file):
    async with Session("test", file) as session:
        counted(session, "work")
        run = await evicted(session, choose, 1)
        await run.pause()
        assert run.state is WorkflowState.PAUSED
        await run.answer("b")
        assert run.state is WorkflowState.PAUSED
        await run.resume()
        assert await within(run.wait()) == [1, "b"]


async def test_an_evicted_run_can_be_forked(file):
    async with Session("test", file) as session:
        work = counted(session, "work")
        run = await evicted(session, choose, 1)
        fork = await session.fork(run.run_id)
        await at_gate(fork)
        await fork.answer("a")
        assert await within(fork.wait()) == [1, "a"]
        assert work == [1]
        assert run.state is WorkflowState.WAITING


async def test_an_evicted_run_whose_replay_differs_is_held_when_it_is_answered(file):
    calls = []

    async def fickle(ctx):
        calls.append(1)
        await ctx.run("work", len(calls))
        return await ctx.gate("Continue?")

    async with Session("test", file) as session:
        counted(session, "work")
        run = await evicted(session, fickle)
        await run.answer("yes")
        with pytest.raises(RunHeld, match="/work"):
            await within(run.wait())
        assert "gate_answered" in types(run)


async def test_an_evicted_child_returns_its_value_to_its_parent(file):
    async def parent(ctx):
        return await ctx.run_workflow("ask")

    async with Session("test", file) as session:
        session.workflow(ask), session.workflow(parent)
        run = await session.start("parent")
        await at_gate(run)
        for _ in range(3):
            await at_gate(await session.start("ask"))
        await until(lambda: len(session.engine.executors) <= 3)
        await run.answer("yes", "/ask/gate")
        assert await within(run.wait()) == "yes"


async def test_a_run_in_memory_is_never_evicted(session):
    session.workflow(ask)
    runs = [await session.start("ask") for _ in range(5)]
    await until(lambda: all(run.pending_gate for run in runs))
    assert len(session.engine.executors) == 5


async def test_a_run_with_another_task_is_not_evicted(file):
    async def busy(ctx):
        gate = asyncio.ensure_future(ctx.gate("Continue?"))
        return [(await ctx.run("work", 1))["output"], await gate]

    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(context):
        entered.set()
        await go.wait()
        return context.input

    async with Session("test", file) as session:
        FunctionNode("work", session, slow)
        session.workflow(busy), session.workflow(ask)
        run = await session.start("busy")
        await entered.wait()
        for _ in range(4):
            await at_gate(await session.start("ask"))
        assert run.run_id in session.engine.executors
        go.set()
        await run.answer("yes")
        assert await within(run.wait()) == [1, "yes"]


async def test_runs_answered_in_another_order_get_their_own_answers(file):
    async with Session("test", file) as session:
        work = counted(session, "work")
        session.workflow(choose)
        runs = await asyncio.gather(*(session.start("choose", number) for number in range(60)))
        await until(lambda: all(run.pending_gate for run in runs))
        answers = {run: "ab"[number % 2] for number, run in enumerate(runs)}
        await asyncio.gather(*(run.answer(answers[run]) for run in reversed(runs)))
        values = await within(asyncio.gather(*(run.wait() for run in runs)))
        assert values == [[number, "ab"[number % 2]] for number in range(60)]
        assert sorted(work) == list(range(60))
