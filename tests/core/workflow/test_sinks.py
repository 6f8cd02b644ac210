"""Sinks receive every event in order and cannot affect a run."""

import asyncio
import gc

import pytest

from core.workflow.support import Latch, at_gate, counted, types, until, within
from nerve import FunctionNode, Session
from nerve.core.workflow import Workflow, WorkflowRun


class Kept:
    def __init__(self):
        self.heard = []

    def emit(self, event):
        self.heard.append(event)


class Later(Kept):
    async def emit(self, event):
        await asyncio.sleep(0)
        self.heard.append(event)


class Slow(Kept):
    """A sink that never finishes an event."""

    async def emit(self, event):
        self.heard.append(event)
        await asyncio.Event().wait()


async def body(ctx):
    ctx.emit("begin")
    for number in range(3):
        await ctx.run("echo", number)
    return "done"


async def started(session, sink, fn=body) -> WorkflowRun:
    if "echo" not in session.nodes:
        counted(session, "echo")
    run = WorkflowRun(Workflow("body", session, fn), None, event_sink=sink)
    await run.start()
    return run


@pytest.mark.requirement("C-10")
@pytest.mark.requirement("S0-47")
@pytest.mark.requirement("S1-32")
@pytest.mark.parametrize("kind", [Kept, Later])
async def test_a_sink_with_emit_receives_every_event_in_order(session, kind):
    sink = kind()
    run = await started(session, sink)
    await run.wait()
    await until(lambda: len(sink.heard) == len(run.events))
    assert [event.seq for event in sink.heard] == list(range(1, len(run.events) + 1))
    assert [event.event_type for event in sink.heard] == types(run)
    assert {(event.run_id, event.workflow_id) for event in sink.heard} == {(run.run_id, "body")}


@pytest.mark.requirement("C-10")
async def test_a_plain_callable_is_a_sink(session):
    heard = []
    run = await started(session, heard.append)
    await run.wait()
    assert [event.event_type for event in heard] == types(run)


@pytest.mark.requirement("C-10")
async def test_an_async_function_is_a_sink(session):
    heard = []

    async def sink(event):
        heard.append(event.event_type)

    run = await started(session, sink)
    await run.wait()
    await until(lambda: heard == types(run))


@pytest.mark.requirement("S0-47")
@pytest.mark.requirement("D0-7")
@pytest.mark.parametrize("error", [RuntimeError("no screen"), SystemExit(3), asyncio.CancelledError()])
async def test_a_failing_sink_is_logged_and_the_run_continues(session, caplog, error):
    def sink(event):
        raise error

    run = await started(session, sink)
    assert await run.wait() == "done"
    assert "event sink failed" in caplog.text


@pytest.mark.requirement("S0-47")
@pytest.mark.requirement("D0-7")
@pytest.mark.parametrize("error", [RuntimeError("no screen"), SystemExit(3), asyncio.CancelledError()])
async def test_a_failing_async_sink_is_logged_and_receives_the_next_event(session, caplog, error):
    heard = []

    async def sink(event):
        heard.append(event.event_type)
        await asyncio.sleep(0)
        raise error

    run = await started(session, sink)
    assert await run.wait() == "done"
    await until(lambda: heard == types(run))
    assert "event sink failed" in caplog.text


@pytest.mark.requirement("S0-47")
async def test_a_sink_that_never_returns_blocks_only_itself_and_is_abandoned(file):
    async def value(sink):
        async with Session("test", file) as session:
            return await within((await started(session, sink)).wait())

    sink = Slow()
    assert await value(sink) == "done"
    assert len(sink.heard) == 1
    gc.collect()


@pytest.mark.requirement("S0-47")
async def test_a_sink_that_never_returns_does_not_block_the_sinks_of_other_runs(session):
    await started(session, Slow())
    sink = Later()
    run = WorkflowRun(session.get_workflow("body"), None, event_sink=sink)
    await run.start()
    await run.wait()
    await until(lambda: len(sink.heard) == len(run.events))


@pytest.mark.requirement("D0-7")
async def test_an_event_is_delivered_only_after_it_is_on_disk(file):
    seen = []

    async with Session("test", file) as session:

        def sink(event):
            seen.append(event.seq <= session.engine.store.events(event.run_id)[-1].seq)

        run = await started(session, sink)
        await run.wait()
    assert seen
    assert all(seen)


async def test_a_recorded_emit_is_not_delivered_again_after_recovery(file):
    async def ask(ctx):
        ctx.emit("begin")
        await ctx.gate("Continue?")
        ctx.emit("end")

    async with Session("test", file) as session:
        run = await started(session, None, ask)
        await at_gate(run)
    async with Session("test", file) as session:
        Workflow("body", session, ask)
        (run,) = await session.recover()
        heard = []
        run.sinks.append(lambda event: heard.append(event.event_type))
        await run.answer("yes")
        await run.wait()
    assert heard == ["gate_answered", "end", "workflow_completed"]


async def test_global_sinks_receive_all_events_of_forks_and_their_child_runs(session):
    heard = {}
    session.engine.sinks.append(lambda event: heard.setdefault(event.run_id, []).append(event.seq))
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    @session.workflow
    async def child(ctx):
        return (await ctx.run("work", 1))["output"]

    @session.workflow
    async def parent(ctx):
        return await ctx.run_workflow("child")

    run = await session.start("parent")
    await latch.entered.wait()
    fork = await session.fork(run.run_id)
    latch.open.set()
    runs = [run, fork, *(session.get_workflow_run(each.events[1].data["child"]) for each in (run, fork))]
    for each in runs:
        await within(each.wait())
    assert heard == {each.run_id: [event.seq for event in each.events] for each in runs}


class Delayed(Kept):
    """A sink that takes no event until it is told to."""

    def __init__(self):
        super().__init__()
        self.goes_on = asyncio.Event()

    async def emit(self, event):
        await self.goes_on.wait()
        self.heard.append(event.event_type)


@pytest.mark.requirement("S0-47")
async def test_the_end_of_a_run_is_delivered_without_waiting_for_a_slow_sink(file):
    sink = Delayed()
    async with Session("test", file) as session:
        run = await started(session, sink)
        for _ in range(2):
            assert await run.wait() == "done"
        assert sink.heard == []
        sink.goes_on.set()
        expected = types(run)
    assert sink.heard == expected, "closing the session gives sinks their time"


@pytest.mark.requirement("S1-32")
async def test_the_sink_of_a_run_receives_the_gates_of_its_child_runs(session):
    async def child(ctx):
        return await ctx.gate("Child?")

    async def parent(ctx):
        return await ctx.run_workflow("child")

    sink, everything = Kept(), Kept()
    session.engine.sinks.append(everything)
    Workflow("child", session, child)
    run = WorkflowRun(Workflow("parent", session, parent), None, event_sink=sink)
    await run.start()
    await until(lambda: [event for event in sink.heard if event.event_type == "gate_waiting"])
    gate = sink.heard[-1]
    assert (gate.path, gate.data["prompt"]) == ("/gate", "Child?")
    assert gate.data["shown_in"] == {"run_id": run.run_id, "path": "/child/gate"}
    run.answer_gate("yes", gate.data["gate_id"])
    assert await within(run.wait()) == "yes"
    await until(lambda: len(sink.heard) == len(run.events) + 2)
    assert [event for event in sink.heard if event.run_id == run.run_id] == run.events
    assert "gate_waiting" not in types(run)
    assert len([event for event in everything.heard if event.event_type == "gate_waiting"]) == 1
