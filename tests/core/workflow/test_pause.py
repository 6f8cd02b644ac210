"""Pause: no new call or wait starts, running steps finish, and it survives a restart."""

import asyncio

import pytest

from core.workflow.support import Latch, at_gate, counted, data_of, types, until, within
from nerve import FunctionNode, Retry, Session
from nerve.core.runtime import GateWait
from nerve.core.workflow import WorkflowState


async def two_steps(ctx):
    await ctx.run("work", 1)
    return (await ctx.run("after", 2))["output"]


def opened(file, latch):
    session = Session("test", file)
    FunctionNode("work", session, latch.leaf)
    session.workflow(two_steps)
    return session, counted(session, "after")


@pytest.mark.requirement("C-16")
@pytest.mark.requirement("S0-02")
@pytest.mark.requirement("S1-11")
@pytest.mark.requirement("S1-38")
async def test_pausing_is_shown_while_a_leaf_runs_and_paused_when_it_has_ended():
    latch = Latch()
    session, after = opened(None, latch)
    run = await session.start("two_steps")
    await latch.entered.wait()
    await run.pause()
    assert (run.state, run.view.state) == (WorkflowState.PAUSING, "pausing")
    latch.open.set()
    await until(lambda: run.state is WorkflowState.PAUSED)
    assert run.view.state == "paused"
    assert after == []
    await run.resume()
    assert await within(run.wait()) == 2
    assert [name for name in types(run) if name.startswith("workflow_")] == [
        "workflow_started", "workflow_paused", "workflow_resumed", "workflow_completed",
    ]  # fmt: skip


async def test_the_step_that_was_running_is_recorded_while_the_run_is_paused():
    latch = Latch()
    session, _ = opened(None, latch)
    run = await session.start("two_steps")
    await latch.entered.wait()
    await run.pause()
    latch.open.set()
    await until(lambda: "node_completed" in types(run))
    assert types(run).count("node_started") == 1
    await run.stop()


async def test_a_waiting_run_is_paused_at_once_and_its_gate_can_still_be_answered(session):
    after = counted(session, "after")

    @session.workflow
    async def ask(ctx):
        answer = await ctx.gate("Continue?")
        return (await ctx.run("after", answer))["output"]

    run = await session.start("ask")
    await at_gate(run)
    await run.pause()
    assert run.state is WorkflowState.PAUSED
    await run.answer("yes")
    assert (run.state, after) == (WorkflowState.PAUSED, [])
    await run.resume()
    assert await within(run.wait()) == "yes"


async def test_a_paused_run_stays_paused_over_a_restart_until_it_is_resumed(file):
    latch = Latch()
    session, _ = opened(file, latch)
    async with session:
        run = await session.start("two_steps")
        await latch.entered.wait()
        await run.pause()
        latch.open.set()
        await until(lambda: run.state is WorkflowState.PAUSED)
    session, after = opened(file, latch)
    async with session:
        (run,) = await session.recover()
        assert (run.state, run.view.state) == (WorkflowState.PAUSED, "paused")
        assert after == []
        await run.resume()
        assert await within(run.wait()) == 2
    assert (len(latch.inputs), after) == (1, [2])


async def test_a_run_that_was_pausing_is_paused_after_a_restart(file):
    latch = Latch()
    session, _ = opened(file, latch)
    async with session:
        run = await session.start("two_steps")
        await latch.entered.wait()
        await run.pause()
    latch.open.set()
    session, _ = opened(file, latch)
    async with session:
        (run,) = await session.recover()
        assert run.state is WorkflowState.PAUSED
        assert len(latch.inputs) == 1
        await run.resume()
        assert await within(run.wait()) == 2
    assert len(latch.inputs) == 2


async def test_an_answer_to_a_paused_parked_run_is_used_after_resume(file):
    async def ask(ctx):
        return await ctx.gate("Continue?")

    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        await run.pause()
    async with Session("test", file) as session:
        session.workflow(ask)
        (run,) = await session.recover()
        await run.answer("yes")
        assert run.state is WorkflowState.PAUSED
        await run.resume()
        assert await within(run.wait()) == "yes"


async def test_a_waiting_parked_run_can_be_paused(file):
    async def ask(ctx):
        return await ctx.gate("Continue?")

    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
    async with Session("test", file) as session:
        session.workflow(ask)
        (run,) = await session.recover()
        await run.pause()
        assert run.state is WorkflowState.PAUSED
        assert [gate.prompt for gate in run.pending_gates] == ["Continue?"]
        await run.resume()
        await until(lambda: run.state is WorkflowState.WAITING)
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


async def test_a_timer_of_a_paused_run_continues_and_the_body_resumes_later(session):
    @session.workflow
    async def nap(ctx):
        await ctx.sleep(0.02)
        ctx.state["woke"] = True
        return (await ctx.run("after", 1))["output"]

    after = counted(session, "after")
    run = await session.start("nap")
    await run.pause()
    await until(lambda: "timer_fired" in types(run) or "timer_started" not in types(run))
    assert after == []
    await run.resume()
    assert await within(run.wait()) == 1


async def test_pausing_is_idempotent(session):
    @session.workflow
    async def ask(ctx):
        return await ctx.gate("Continue?")

    run = await session.start("ask")
    await at_gate(run)
    await run.pause()
    await run.pause()
    assert types(run).count("workflow_paused") == 1
    await run.resume()
    assert run.state is WorkflowState.WAITING


@pytest.mark.parametrize("what", ["pause", "resume"])
async def test_a_finished_run_can_be_neither_paused_nor_resumed(session, what):
    @session.workflow
    async def quick(ctx):
        return 1

    run = await session.start("quick")
    await run.wait()
    told = f"Cannot {what} run in state completed: run '{run.run_id}' has ended; fork it"
    with pytest.raises(RuntimeError, match=told):
        await getattr(run, what)()


async def test_a_running_run_cannot_be_resumed():
    latch = Latch()
    session, _ = opened(None, latch)
    run = await session.start("two_steps")
    await latch.entered.wait()
    with pytest.raises(RuntimeError, match="Cannot resume run in state running"):
        await run.resume()
    await run.stop()


async def test_resuming_while_still_pausing_continues_the_run():
    latch = Latch()
    session, _ = opened(None, latch)
    run = await session.start("two_steps")
    await latch.entered.wait()
    await run.pause()
    await run.resume()
    assert run.state is WorkflowState.RUNNING
    latch.open.set()
    assert await within(run.wait()) == 2


async def test_wait_does_not_return_while_the_run_is_paused():
    latch = Latch()
    session, _ = opened(None, latch)
    run = await session.start("two_steps")
    await latch.entered.wait()
    waiter = asyncio.ensure_future(run.wait())
    await run.pause()
    latch.open.set()
    await until(lambda: run.state is WorkflowState.PAUSED)
    assert not waiter.done()
    await run.resume()
    assert await within(waiter) == 2


async def test_pausing_a_parent_delays_the_steps_after_its_child(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)
    after = counted(session, "after")

    @session.workflow
    async def child(ctx):
        await ctx.run("work", 1)

    @session.workflow
    async def parent(ctx):
        await ctx.run_workflow("child")
        return (await ctx.run("after", 2))["output"]

    run = await session.start("parent")
    await latch.entered.wait()
    await run.pause()
    latch.open.set()
    await until(lambda: run.state is WorkflowState.PAUSED)
    assert after == []
    await run.resume()
    assert await within(run.wait()) == 2


async def test_a_parent_that_only_waits_for_a_paused_child_is_paused(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def child(ctx):
        await ctx.run("work", 1)
        return (await ctx.run("work", 2))["output"]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("child")

    run = await session.start("parent")
    await latch.entered.wait()
    alone = run.run_state.children["/child"]
    await alone.pause()
    assert (alone.state, run.state) == (WorkflowState.PAUSING, WorkflowState.RUNNING)
    latch.open.set()
    await until(lambda: run.state is WorkflowState.PAUSED)
    await run.resume()
    assert await within(run.wait()) == 2


@pytest.mark.parametrize("restarted", [True, False])
async def test_an_answer_to_a_paused_run_is_kept_until_it_is_resumed(file, restarted):
    async def ask(ctx):
        answer = await ctx.gate("Continue?")
        ctx.emit("went_on")
        return answer

    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
        await run.pause()
        if not restarted:
            await answered_and_resumed(session, run)
    if restarted:
        async with Session("test", file) as session:
            session.workflow(ask)
            (run,) = await session.recover()
            await answered_and_resumed(session, run)


async def answered_and_resumed(session, run):
    other = await session.start("ask")
    await run.answer("yes")
    assert run.pending_gates == []
    await at_gate(other)
    await other.answer("no")
    assert await within(other.wait()) == "no"
    assert (run.state, types(run)[-1]) == (WorkflowState.PAUSED, "gate_answered")
    await run.resume()
    assert await within(run.wait()) == "yes"
    assert types(run)[-3:] == ["workflow_resumed", "went_on", "workflow_completed"]


@pytest.mark.parametrize("beside", [True, False])
async def test_the_function_of_a_paused_run_does_not_get_the_result_of_its_last_step(session, beside):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def one_step(ctx):
        if beside:
            await asyncio.gather(ctx.run("work", 1), ctx.run("work", 2))
        else:
            await ctx.run("work", 1)
        ctx.emit("went_on")

    run = await session.start("one_step")
    await until(lambda: len(latch.inputs) == 1 + beside)
    await run.pause()
    latch.open.set()
    await until(lambda: types(run).count("node_completed") == 1 + beside)
    other = await session.start("one_step")
    await within(other.wait())
    assert (run.state, "went_on" in types(run)) == (WorkflowState.PAUSED, False)
    await run.resume()
    await within(run.wait())
    assert "went_on" in types(run)


async def test_a_leaf_with_an_open_gate_can_finish_while_the_run_is_pausing(session):
    async def careful(context):
        return await context.leaf_runtime.ask(GateWait(f"{context.path}/ask", "Deploy?"))

    FunctionNode("careful", session, careful)

    @session.workflow
    async def deploys(ctx):
        return (await ctx.run("careful"))["output"]

    run = await session.start("deploys")
    await at_gate(run)
    await run.pause()
    assert run.state is WorkflowState.PAUSING
    await run.answer("yes")
    await until(lambda: run.state is WorkflowState.PAUSED)
    await until(lambda: types(run)[-1] == "node_completed")
    await run.resume()
    assert await within(run.wait()) == "yes"


class Trying:
    """A leaf that fails twice, each time when it is released."""

    def __init__(self):
        self.tries, self.latches = 0, [Latch() for _ in range(3)]
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def leaf(self, context):
        self.tries += 1
        if self.tries < 3:
            await self.latches[self.tries - 1].leaf(context)
            raise OSError(f"try {self.tries}")
        await self.may_end.wait()
        return self.tries

    def at(self, file, delay=0.0):
        session = Session("test", file)
        FunctionNode("work", session, self.leaf, retry=Retry(attempts=3, delay=delay))

        @session.workflow
        async def patient(ctx):
            return (await ctx.run("work"))["output"]

        return session


async def test_a_pause_takes_effect_between_two_attempts_at_a_step():
    trying = Trying()
    async with trying.at(None) as session:
        run = await session.start("patient")
        await trying.latches[0].entered.wait()
        await run.pause()
        assert (run.state, run.view.state) == (WorkflowState.PAUSING, "pausing")
        trying.latches[0].open.set()
        await until(lambda: run.state is WorkflowState.PAUSED and "node_retrying" in types(run))
        other = await session.start("patient")
        await trying.latches[1].entered.wait()
        assert (trying.tries, run.state, run.view.state) == (2, WorkflowState.PAUSED, "paused")
        trying.latches[1].open.set()
        assert await within(other.wait()) == 3
        assert types(run)[-1] == "node_retrying"
        trying.may_end.clear()
        await run.resume()
        assert (run.state, run.view.state) == (WorkflowState.RUNNING, "running")
        trying.may_end.set()
        assert await within(run.wait()) == 4


async def test_a_run_is_paused_at_once_during_a_backoff():
    trying = Trying()
    async with trying.at(None, delay=60) as session:
        run = await session.start("patient")
        trying.latches[0].open.set()
        await until(lambda: "node_retrying" in types(run))
        await run.pause()
        assert (run.state, run.view.state) == (WorkflowState.PAUSED, "paused")
        assert await run.stop() == []


async def test_the_attempts_before_a_pause_count_after_a_restart(file):
    trying = Trying()
    async with trying.at(file) as session:
        run = await session.start("patient")
        await trying.latches[0].entered.wait()
        await run.pause()
        trying.latches[0].open.set()
        await until(lambda: run.state is WorkflowState.PAUSED)
    async with trying.at(file) as session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        assert (run.state, run.view.state, trying.tries) == (WorkflowState.PAUSED, "paused", 1)
        trying.latches[1].open.set()
        await run.resume()
        assert await within(run.wait()) == 3
        tries = [data["attempt"] for data in data_of(run, "node_retrying") if "recovered" not in data]
        assert tries == [1, 2]


async def test_a_step_in_backoff_resumes_with_changed_code(file):
    trying = Trying()
    async with trying.at(file) as session:
        run = await session.start("patient")
        await trying.latches[0].entered.wait()
        await run.pause()
        trying.latches[0].open.set()
        await until(lambda: run.state is WorkflowState.PAUSED)
        trying.latches[1].open.set()
        del session.workflows["patient"]

        @session.workflow
        async def patient(ctx):
            return [(await ctx.run("work"))["output"]]

        await run.resume(with_changes=True)
        assert await within(run.wait()) == [3]
        assert trying.tries == 3
