"""Recovery: the body is replayed from the journal and then continues."""

import asyncio
import contextlib
from contextlib import closing
from datetime import datetime
from itertools import pairwise
from uuid import UUID

import pytest

from core.workflow.support import Latch, at_gate, copy_store, counted, data_of, types, until, within
from nerve import FunctionNode, Graph, Node, Session
from nerve.core.clock import SYSTEM_CLOCK
from nerve.core.workflow import Workflow, WorkflowState
from nerve.errors import NodeFailed, RunHeld, WorkflowFailed
from nerve.store.port import Append, EventRow
from nerve.store.sqlite import SqliteStore
from nerve.testing import VirtualClock


def opened(file, body, *nodes, name="test", clock=SYSTEM_CLOCK):
    """Return a session with a body and its nodes, passed as (id, leaf)."""
    session = Session(name, file, clock=clock)
    Workflow("body", session, body)
    for id, leaf in nodes:
        FunctionNode(id, session, leaf)
    return session


@pytest.mark.requirement("S0-73")
@pytest.mark.requirement("S0-74")
async def test_a_run_resumes_after_a_restart_without_repeating_settled_steps(file):
    async def body(ctx):
        ctx.state["notes"] = [(await ctx.run("first", "a"))["output"]]
        ctx.state["notes"].append(await ctx.gate("Continue?"))
        ctx.state["notes"].append((await ctx.run("last", "z"))["output"])
        return ctx.state

    seen = []
    for part in ("start", "recover"):
        async with opened(file, body) as session:
            first, last = counted(session, "first"), counted(session, "last")
            if part == "start":
                run = await session.start("body")
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == {"notes": ["a", "yes", "z"]}
            seen.append((first, last))
    assert seen == [(["a"], []), ([], ["z"])]


async def test_a_leaf_that_was_running_is_executed_again(file):
    latch = Latch()

    async def body(ctx):
        return (await ctx.run("work", "in"))["output"]

    async with opened(file, body, ("work", latch.leaf)) as session:
        await session.start("body")
        await latch.entered.wait()
    latch.open.set()
    async with opened(file, body, ("work", latch.leaf)) as session:
        (run,) = await session.recover()
        assert await within(run.wait()) == "in"
        assert data_of(run, "node_retrying")[0]["recovered"] is True
    assert latch.inputs == ["in", "in"]


async def test_a_crash_between_two_steps_repeats_neither(file, tmp_path):
    latch = Latch()

    async def body(ctx):
        first = await ctx.run("first", 1)
        return [first["output"], (await ctx.run("second", 2))["output"]]

    async with opened(file, body, ("second", latch.leaf)) as session:
        first = counted(session, "first")
        await session.start("body")
        await latch.entered.wait()
        copy = copy_store(file, tmp_path / "crashed")
    latch.open.set()
    async with opened(copy, body, ("second", latch.leaf)) as session:
        again = counted(session, "first")
        (run,) = await session.recover()
        assert await within(run.wait()) == [1, 2]
    assert (first, again) == ([1], [])


@pytest.mark.parametrize("beside", [False, True])
async def test_a_step_gets_the_same_time_again_after_a_crash(file, tmp_path, beside):
    inputs, crashed = [], []

    async def work(context):
        inputs.append((context.idempotency_key, context.input))
        if not crashed:
            crashed.append(copy_store(file, tmp_path / "crashed"))
        return context.input

    async def body(ctx):
        other = asyncio.create_task(ctx.gate("Never answered")) if beside else None
        done = await ctx.run("work", ctx.now().isoformat())
        if other is not None:
            other.cancel()
        return done["output"]

    async with opened(file, body, ("work", work)) as session:
        await within((await session.start("body")).wait())
    async with opened(crashed[0], body, ("work", work)) as session:
        (run,) = await session.recover()
        await within(run.wait())
    assert len(inputs) == 2
    assert inputs[0] == inputs[1]


async def test_now_random_and_new_id_are_the_same_after_recovery(file):
    seen = []

    async def body(ctx):
        seen.append([ctx.now(), ctx.random(), ctx.random(), ctx.new_id(), ctx.new_id(), ctx.now()])
        return await ctx.gate("Continue?")

    async with opened(file, body) as session:
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, body) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        await within(run.wait())
    first, again = seen
    assert first == again
    assert isinstance(first[0], datetime)
    assert first[0] <= first[5]
    assert first[1] != first[2]
    assert UUID(first[3]) != UUID(first[4])
    assert 0 <= first[1] < 1


async def test_two_runs_have_different_random_numbers_and_ids(session):
    @session.workflow
    async def draw(ctx):
        return [ctx.random(), ctx.new_id()]

    one, other = [await (await session.start("draw")).wait() for _ in range(2)]
    assert one[0] != other[0]
    assert one[1] != other[1]


@pytest.mark.requirement("D0-17")
async def test_a_node_that_raised_raises_node_failed_again_after_recovery(file):
    class Broken(Node):
        async def execute(self, context):
            raise LookupError("nothing there")

    caught = []

    async def body(ctx):
        try:
            await ctx.run("broken", None)
        except NodeFailed as error:
            caught.append((error.path, error.error_type, error.error, error.__cause__ is None))
        return await ctx.gate("Continue?")

    for part in ("start", "recover"):
        async with opened(file, body) as session:
            Broken("broken", session)
            if part == "start":
                run = await session.start("body")
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                await within(run.wait())
    assert caught[0][:3] == caught[1][:3] == ("/broken", "LookupError", "nothing there")
    assert [live for *_, live in caught] == [False, True]


async def test_a_timeout_raises_timeout_error_again_after_recovery(file):
    latch, seen = Latch(), []

    async def body(ctx):
        try:
            await ctx.run("slow", None, timeout=0.01)
        except TimeoutError as error:
            seen.append(str(error))
        return await ctx.gate("Continue?")

    async with opened(file, body, ("slow", latch.leaf)) as session:
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, body, ("slow", latch.leaf)) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        await within(run.wait())
    assert len(seen) == 2
    assert len(set(seen)) == 1
    assert len(latch.inputs) == 1


@pytest.mark.requirement("S0-43")
async def test_a_failed_run_raises_workflow_failed_in_another_process(file):
    async def body(ctx):
        raise KeyError("gone")

    async with opened(file, body) as session:
        run = await session.start("body")
        with pytest.raises(KeyError):
            await run.wait()
    async with opened(file, body) as session:
        assert await session.recover() == []
        with pytest.raises(WorkflowFailed, match="gone") as caught:
            await session.get_workflow_run(run.run_id).wait()
        assert caught.value.error_type == "KeyError"


async def test_the_info_of_a_finished_run_is_the_same_after_a_restart(file):
    async def body(ctx):
        return {"answer": 42}

    async with opened(file, body) as session:
        run = await session.start("body")
        await run.wait()
        before = run.to_info()
    async with opened(file, body) as session:
        run = session.get_workflow_run(run.run_id)
        after = run.to_info()
        assert (after.state, after.result, after.error) == (before.state, before.result, None)
        assert abs((after.completed_at - before.completed_at).total_seconds()) < 1
        assert await run.wait() == {"answer": 42}


async def test_a_body_that_calls_with_another_input_is_held_with_path_and_both_inputs(file):
    async def body(ctx):
        await ctx.run("work", {"version": 1})
        return await ctx.gate("Continue?")

    async def changed(ctx):
        await ctx.run("work", {"version": 2})
        return await ctx.gate("Continue?")

    async with opened(file, body) as session:
        counted(session, "work")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        again = counted(session, "work")
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld) as caught:
            await within(run.wait())
        assert caught.value.reason == "mismatch"
        for part in ("/work", "1", "2", "with_changes"):
            assert part in str(caught.value)
        held = run.to_info().held
        assert (run.state, held["path"]) == (WorkflowState.HELD, "/work")
        assert run.view.state == "held"
        assert again == []


async def test_a_body_that_no_longer_makes_a_recorded_call_is_held(file):
    async def body(ctx):
        await ctx.run("work", 1)
        await ctx.run("more", 2)
        return await ctx.gate("Continue?")

    async def changed(ctx):
        await ctx.run("work", 1)
        return "done early"

    async with opened(file, body) as session:
        counted(session, "work"), counted(session, "more")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        counted(session, "work"), counted(session, "more")
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld, match="/more"):
            await within(run.wait())
        assert "workflow_completed" not in types(run)


async def test_a_body_that_makes_a_new_call_in_the_middle_is_held(file):
    async def body(ctx):
        await ctx.run("work", 1)
        return await ctx.gate("Continue?")

    async def changed(ctx):
        await ctx.run("new", 0)
        await ctx.run("work", 1)
        return await ctx.gate("Continue?")

    async with opened(file, body) as session:
        counted(session, "work"), counted(session, "new")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        new = (counted(session, "work"), counted(session, "new"))[1]
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld, match="/work"):
            await within(run.wait())
        assert new == []


async def test_a_held_run_stays_held_over_a_restart_and_resumes_with_the_old_code(file):
    async def body(ctx):
        await ctx.run("work", 1)
        return await ctx.gate("Continue?")

    async def changed(ctx):
        return "other"

    async with opened(file, body) as session:
        counted(session, "work")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld):
            await within(run.wait())
    async with opened(file, body) as session:
        counted(session, "work")
        (run,) = await session.recover()
        assert (run.state, run.to_info().held["reason"]) == (WorkflowState.HELD, "mismatch")
        await run.resume()
        assert await within(run.wait()) == "yes"


async def test_resume_with_changes_reruns_changed_calls_and_keeps_the_rest(file):
    async def body(ctx):
        await ctx.run("same", 1)
        await ctx.run("work", "old")
        return await ctx.gate("Continue?")

    async def changed(ctx):
        await ctx.run("same", 1)
        done = await ctx.run("work", "new")
        return [done["output"], await ctx.gate("Continue?")]

    async with opened(file, body) as session:
        counted(session, "same"), counted(session, "work")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        same, work = counted(session, "same"), counted(session, "work")
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld):
            await within(run.wait())
        await run.resume(with_changes=True)
        await at_gate(run)
        await run.answer("yes to the new")
        assert await within(run.wait()) == ["new", "yes to the new"]
        assert (same, work) == ([], ["new"])


async def test_resume_with_changes_works_when_steps_were_added_and_removed(file):
    async def body(ctx):
        await ctx.run("gone", 1)
        await ctx.run("kept", 2)
        return await ctx.gate("Continue?")

    async def changed(ctx):
        await ctx.run("kept", 2)
        await ctx.run("added", 3)
        return await ctx.gate("Continue?")

    async with opened(file, body) as session:
        counted(session, "gone"), counted(session, "kept")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        kept, added = counted(session, "kept"), counted(session, "added")
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld):
            await within(run.wait())
        await run.resume(with_changes=True)
        await at_gate(run)
        await run.answer("yes to the new")
        assert await within(run.wait()) == "yes to the new"
        assert (kept, added) == ([], [3])


async def test_a_run_resumed_with_changes_survives_another_restart(file):
    async def body(ctx):
        await ctx.run("work", "old")
        return await ctx.gate("Continue?")

    async def changed(ctx):
        await ctx.run("work", "new")
        return [await ctx.gate("Continue?"), await ctx.gate("Really?")]

    async with opened(file, body) as session:
        counted(session, "work")
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        counted(session, "work")
        (run,) = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld):
            await within(run.wait())
        await run.resume(with_changes=True)
        await at_gate(run)
        await run.answer("yes to the new")
        await until(lambda: run.pending_gate and run.pending_gate.prompt == "Really?")
    async with opened(file, changed) as session:
        again = counted(session, "work")
        (run,) = await session.recover()
        await run.answer("really")
        assert await within(run.wait()) == ["yes to the new", "really"]
        assert again == []


async def test_changed_source_alone_is_recorded_and_does_not_hold_the_run(file):
    async def body(ctx):
        return await ctx.gate("Continue?")

    async def changed(ctx):
        answer = await ctx.gate("Continue?")
        return f"{answer}, and thank you"

    async with opened(file, body) as session:
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, changed) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == "yes, and thank you"
        assert types(run).count("workflow_changed") == 1


async def test_runs_of_unregistered_workflows_and_other_sessions_are_skipped_and_reported(file, caplog):
    async def body(ctx):
        return await ctx.gate("Continue?")

    async with opened(file, body) as session:
        Workflow("other", session, body)
        mine, strange = await session.start("body"), await session.start("other")
        await until(lambda: mine.pending_gate and strange.pending_gate)
    async with opened(file, body, name="elsewhere") as session:
        foreign = await session.start("body")
        await until(lambda: foreign.pending_gate)
    async with opened(file, body) as session:
        (run,) = await session.recover()
        assert run.run_id == mine.run_id
        assert {row.run for row in session.engine.skipped_runs} == {strange.run_id, foreign.run_id}
        assert strange.run_id in caplog.text
    async with opened(file, body, name="elsewhere") as session:
        (run,) = await session.recover()
        assert run.run_id == foreign.run_id
        await run.answer("still here")
        assert await within(run.wait()) == "still here"


async def test_recover_twice_drives_a_run_once(file):
    latch = Latch()

    async def body(ctx):
        return (await ctx.run("work", 1))["output"]

    async with opened(file, body, ("work", latch.leaf)) as session:
        await session.start("body")
        await latch.entered.wait()
    latch = Latch()
    async with opened(file, body, ("work", latch.leaf)) as session:
        (run,) = await session.recover()
        await latch.entered.wait()
        assert await session.recover() == []
        latch.open.set()
        assert await within(run.wait()) == 1
    assert latch.inputs == [1]


async def test_recovering_an_empty_session_returns_no_runs(file):
    async with Session("test", file) as session:
        assert await session.recover() == []
    assert await Session("test").recover() == []


async def test_parallel_calls_get_their_own_results_again_on_replay(file):
    latches = [Latch() for _ in range(3)]

    async def body(ctx):
        results = await ctx.run_parallel([(f"n{number}", number) for number in range(3)])
        return [[r["output"] for r in results], await ctx.gate("Continue?")]

    nodes = [(f"n{number}", latch.leaf) for number, latch in enumerate(latches)]
    async with opened(file, body, *nodes) as session:
        run = await session.start("body")
        for count, latch in enumerate(reversed(latches), 1):
            latch.open.set()
            await until(lambda count=count: types(run).count("node_completed") == count)
        await at_gate(run)
    async with opened(file, body, *nodes) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == [[0, 1, 2], "yes"]


async def test_closing_a_session_parks_its_runs_and_records_no_end(file):
    latch = Latch()

    async def body(ctx):
        await ctx.run("work", 1)

    async with opened(file, body, ("work", latch.leaf)) as session:
        run = await session.start("body")
        await latch.entered.wait()
    async with opened(file, body, ("work", latch.leaf)) as session:
        assert types(session.get_workflow_run(run.run_id)) == ["workflow_started", "node_started"]


def test_an_event_loop_that_ends_with_an_open_run_records_nothing_and_the_run_resumes(file):
    async def body(ctx):
        await ctx.run("work", 1)
        return await ctx.gate("Continue?")

    async def left_open():
        session = opened(file, body)
        counted(session, "work")
        run = await session.start("body")
        await until(lambda: "gate_waiting" in types(run))
        return session, types(run)

    async def go_on():
        async with opened(file, body) as session:
            again = counted(session, "work")
            (run,) = await session.recover()
            now = types(run)
            await run.answer("yes")
            return now, await within(run.wait()), again

    session, before = asyncio.run(left_open())
    session.engine.store.close()
    now, value, again = asyncio.run(go_on())
    assert (now, value, again) == (before, "yes", [])


def test_an_event_loop_that_ends_while_a_leaf_runs_leaves_the_run_recoverable(file):
    async def body(ctx):
        return (await ctx.run("work", 1))["output"]

    async def left_open():
        latch = Latch()
        session = opened(file, body, ("work", latch.leaf))
        await session.start("body")
        await latch.entered.wait()
        return session

    async def go_on():
        async with opened(file, body) as session:
            again = counted(session, "work")
            (run,) = await session.recover()
            return await within(run.wait()), again

    asyncio.run(left_open()).engine.store.close()
    assert asyncio.run(go_on()) == (1, [1])


async def test_a_returned_tuple_is_a_list_from_the_start(session):
    FunctionNode("pair", session, lambda context: (1, (2, 3)))

    @session.workflow
    async def look(ctx):
        output = (await ctx.run("pair", ("a", "b")))["output"]
        return [type(output).__name__, output]

    run = await session.start("look", (1, 2), {"p": (3,)})
    assert (run.input, run.params) == ([1, 2], {"p": [3]})
    assert await run.wait() == ["list", [1, [2, 3]]]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", float("nan"), datetime(2025, 1, 1)])
async def test_a_step_whose_result_is_not_json_fails_and_names_the_type(session, value):
    FunctionNode("odd", session, lambda context: {"deep": [value]})

    @session.workflow
    async def look(ctx):
        return await ctx.run("odd", None)

    result = await (await session.start("look")).wait()
    assert (result["success"], result["error_type"]) == (False, "NotJson")
    assert (type(value).__name__ if value == value else "nan") in result["error"]
    assert "deep[0]" in result["error"]


async def test_an_input_that_is_not_json_fails_its_step_and_is_not_executed(session):
    seen = counted(session, "work")

    @session.workflow
    async def look(ctx):
        return await ctx.run("work", {"file": object()})

    result = await (await session.start("look")).wait()
    assert (result["success"], result["error_type"]) == (False, "NotJson")
    assert seen == []


async def test_a_workflow_input_that_is_not_json_is_rejected_before_anything_is_written(session):
    @session.workflow
    async def look(ctx):
        return None

    with pytest.raises(TypeError, match="object"):
        await session.start("look", {"file": object()})
    assert session.list_workflow_runs() == []


@pytest.mark.parametrize("name", ["workflow_progress", "step_back", "clock_wise", "thread_begun"])
async def test_a_user_event_with_an_engine_prefix_is_delivered_once(file, name):
    async def body(ctx):
        ctx.emit(name, {"percent": 50})
        return await ctx.gate("Go on?")

    async with opened(file, body) as session:
        await at_gate(await session.start("body"))
    async with opened(file, body) as session:
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
        forked = await session.fork(run.run_id)
        assert await within(forked.wait()) == "yes"
        assert types(run).count(name) == types(forked).count(name) == 1


async def test_workflow_changed_is_a_reserved_event_name(session):
    async def body(ctx):
        ctx.emit("workflow_changed", {"field": "title"})

    Workflow("body", session, body)
    run = await session.start("body")
    await within(run.wait())
    assert "user:workflow_changed" in types(run)
    assert "workflow_changed" not in types(run)


async def test_an_unreadable_run_does_not_prevent_the_recovery_of_others(file):
    latch = Latch()

    async def body(ctx):
        return (await ctx.run("work", ctx.input))["output"]

    async with opened(file, body, ("work", latch.leaf)) as session:
        odd, good = await session.start("body", "odd"), await session.start("body", "good")
        await until(lambda: len(latch.inputs) == 2)
    with closing(SqliteStore(file)) as store:
        last = store.events(odd.run_id)[-1].seq
        store.append([Append(odd.run_id, last, [EventRow(last + 1, 0.0, "workflow_changed", "", None, "{")])])
    async with opened(file, body, ("work", latch.leaf)) as session:
        assert [run.run_id for run in await session.recover()] == [good.run_id]
        [left] = session.engine.skipped_runs
        assert left.run == odd.run_id
        assert left.reason.startswith("Expecting property name")


def through_workers(out):
    """Return a function that passes a value through a chain of tasks, and the tasks."""
    queues = [asyncio.Queue() for _ in range(20)]

    async def hand_on(before, after):
        while True:
            await after.put(await before.get())

    async def collect():
        while True:
            out.append(await queues[-1].get())

    workers = [asyncio.create_task(hand_on(*pair)) for pair in pairwise(queues)]
    return queues[0].put, [*workers, asyncio.create_task(collect())]


def after_many_turns(out):
    async def send(value):
        for _ in range(50):
            await asyncio.sleep(0)
        out.append(value)

    return send, []


def joined_after_many_turns(out):
    finished = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]

    async def send(value):
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.gather(*finished)
        out.append(value)

    return send, finished


def joined_after_workers(out):
    stored = asyncio.Queue()
    finished = [asyncio.create_task(asyncio.sleep(0)) for _ in range(2)]
    send, workers = through_workers(Forward(stored))

    async def collect():
        while True:
            value = await stored.get()
            await asyncio.gather(*finished)
            await asyncio.shield(asyncio.wait(finished))
            out.append(value)

    return send, [*workers, asyncio.create_task(collect())]


class Forward:
    """A list that forwards appended items to a queue."""

    def __init__(self, queue):
        self.append = queue.put_nowait


def among_many_tasks(out):
    idle = [asyncio.create_task(asyncio.Event().wait()) for _ in range(110)]
    send, workers = through_workers(out)
    return send, [*workers, *idle]


WAYS = [through_workers, after_many_turns, joined_after_many_turns, joined_after_workers, among_many_tasks]


@pytest.mark.parametrize("way", WAYS)
async def test_the_effects_of_one_outcome_end_before_the_next_is_delivered(file, way):
    done = []

    async def first(context):
        return "A"

    async def second(context):
        await until(lambda: done)
        return "B"

    async def body(ctx):
        send, workers = way(done)

        async def long_way():
            await send((await ctx.run("first"))["output"])

        async def short_way():
            done.append((await ctx.run("second"))["output"])

        await asyncio.gather(long_way(), short_way())
        await ctx.gate("Go on?")
        for worker in workers:
            worker.cancel()
        return done

    for part in ("start", "recover"):
        done.clear()
        async with opened(file, body, ("first", first), ("second", second)) as session:
            if part == "start":
                await at_gate(await session.start("body"))
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == ["A", "B"]


async def gives_up_a_leaf(ctx):
    async with ctx.timeout(0.02):
        await ctx.run("stubborn")


async def gives_up_a_child(ctx):
    async with ctx.timeout(0.02):
        await ctx.run_workflow("child")


async def gives_up_parallel_leaves(ctx):
    async with ctx.timeout(0.02):
        await asyncio.gather(ctx.run("stubborn"), ctx.run("stubborn"))


async def gives_up_a_graph(ctx):
    async with ctx.timeout(0.02):
        await ctx.run_graph("graph")


async def gives_up_twice(ctx):
    async with ctx.timeout(0.04), ctx.timeout(0.02):
        await ctx.run("stubborn")


GIVING_UP = [
    (gives_up_a_leaf, 1),
    (gives_up_a_child, 1),
    (gives_up_parallel_leaves, 2),
    (gives_up_a_graph, 1),
    (gives_up_twice, 1),
]


@pytest.mark.parametrize(("give_up", "leaf_count"), GIVING_UP)
async def test_the_ends_of_cancelled_calls_are_replayed_in_the_same_order(file, give_up, leaf_count):
    order, started, clock = [], [], VirtualClock(skip=False)

    async def quick(context):
        await given_up.wait()
        return 1

    async def stubborn(context):
        started.append(context.path)
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
            for _ in range(2):  # a second cancellation does not end it either
                with contextlib.suppress(asyncio.CancelledError):
                    await until(lambda: "quick" in order)
            raise asyncio.CancelledError

    async def body(ctx):
        order.clear()

        async def bounded():
            with contextlib.suppress(TimeoutError):
                await give_up(ctx)
            order.append("given up")

        async def other():
            await ctx.run("quick")
            order.append("quick")

        tasks = [asyncio.create_task(each()) for each in (bounded, other)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winners = [tasks.index(task) for task in tasks if task in done]
        await asyncio.gather(*tasks)
        await ctx.run("effect", [winners, order])
        return await ctx.gate("Go on?"), winners, order

    async def child(ctx):
        await ctx.run("stubborn")

    seen = []
    for part in ("start", "recover"):
        given_up = asyncio.Event()
        async with opened(file, body, ("quick", quick), ("stubborn", stubborn), clock=clock) as session:
            Workflow("child", session, child)
            Graph("graph", session).add_step(session.get_node("stubborn"), "one")
            effects = counted(session, "effect")
            if part == "start":
                run = await session.start("body")
                await until(lambda: len(started) == leaf_count)
                clock.jump(1)
                await at_gate(run)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == ["yes", [1], ["quick", "given up"]]
            seen.append(effects)
    assert seen == [[[[1], ["quick", "given up"]]], []]


async def test_the_result_of_a_cancelled_leaf_is_replayed_after_a_restart(file):
    async def partial(context):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "partial"

    async def body(ctx):
        task = asyncio.create_task(ctx.run("work"))
        await ctx.sleep(0.01)
        task.cancel()
        return (await task)["output"], await ctx.gate("Go on?")

    for part in ("start", "recover"):
        async with opened(file, body, ("work", partial)) as session:
            if part == "start":
                await at_gate(await session.start("body"))
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await within(run.wait()) == ["partial", "yes"]
