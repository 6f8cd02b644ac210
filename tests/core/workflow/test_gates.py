"""Gates of runs: opened in order, answered once, recorded before the run continues."""

import asyncio
from hashlib import sha256

import apsw
import pytest

from core.workflow.support import Latch, at_gate, copy_store, counted, data_of, types, until, within
from nerve import FunctionNode, Graph, Session
from nerve.core.nodes.control import GateNode, ParallelNode
from nerve.core.workflow import WorkflowState
from nerve.errors import GateNotOpen
from nerve.testing import VirtualClock


async def ask(ctx):
    return await ctx.gate("Continue?")


async def choose(ctx):
    return await ctx.gate("Which?", choices=["approve", "reject"])


async def ask_two(ctx):
    return await asyncio.gather(ctx.gate("First?"), ctx.gate("Second?"))


async def opened(session, fn, gates=1, **options):
    if fn.__name__ not in session.workflows:
        session.workflow(fn)
    run = await session.start(fn.__name__, **options)
    await until(lambda: len(run.pending_gates) == gates)
    return run


@pytest.mark.requirement("S0-45")
async def test_answering_when_no_gate_is_open_is_rejected(session):
    run = await opened(session, ask)
    run.answer_gate("yes")
    with pytest.raises(RuntimeError, match="No gate pending"):
        run.answer_gate("again")
    assert await run.wait() == "yes"
    with pytest.raises(RuntimeError, match="No gate pending"):
        run.answer_gate("too late")


@pytest.mark.requirement("S0-31")
@pytest.mark.requirement("S0-45")
@pytest.mark.requirement("C-12")
async def test_a_wrong_choice_is_rejected_and_the_gate_stays_open(session):
    run = await opened(session, choose)
    with pytest.raises(ValueError, match=r"Invalid choice 'maybe'. Must be one of: \['approve', 'reject'\]"):
        run.answer_gate("maybe")
    with pytest.raises(ValueError, match="Invalid choice"):
        await run.answer("maybe")
    assert (run.state, len(run.pending_gates)) == (WorkflowState.WAITING, 1)
    run.answer_gate("reject")
    assert await run.wait() == "reject"


@pytest.mark.requirement("C-12")
async def test_options_are_hints_and_any_answer_is_accepted(session):
    async def suggest(ctx):
        return await ctx.gate("Which?", options=["a", "b"])

    run = await opened(session, suggest)
    assert run.pending_gate.options == ["a", "b"]
    run.answer_gate("c")
    assert await run.wait() == "c"


@pytest.mark.requirement("S0-45")
async def test_an_answer_claims_the_gate_and_sets_running_at_once(session):
    run = await opened(session, ask)
    run.answer_gate("yes")
    assert (run.state, run.pending_gate) == (WorkflowState.RUNNING, None)
    assert await run.wait() == "yes"


@pytest.mark.requirement("S0-27")
@pytest.mark.requirement("C-24")
async def test_the_id_of_a_gate_is_derived_from_its_run_and_path(session):
    run = await opened(session, ask)
    gate = run.pending_gate
    assert gate.path == "/gate"
    assert gate.gate_id == sha256(f"{run.run_id}/gate".encode()).hexdigest()[:8]


@pytest.mark.requirement("D0-3")
async def test_several_open_gates_are_listed_oldest_first(session):
    run = await opened(session, ask_two, 2)
    assert [gate.prompt for gate in run.pending_gates] == ["First?", "Second?"]
    assert [gate.path for gate in run.pending_gates] == ["/gate", "/gate[2]"]
    assert run.pending_gate == run.pending_gates[0]
    assert [gate["prompt"] for gate in run.to_info().pending_gates] == ["First?", "Second?"]


@pytest.mark.requirement("D0-3")
@pytest.mark.requirement("D0-13")
async def test_with_several_open_gates_an_answer_must_name_one(session):
    run = await opened(session, ask_two, 2)
    first, second = run.pending_gates
    with pytest.raises(RuntimeError, match=f"Several gates are open.*{first.gate_id}.*{second.gate_id}"):
        run.answer_gate("which?")
    run.answer_gate("two", second.gate_id)
    assert run.state is WorkflowState.WAITING
    run.answer_gate("one")
    assert await run.wait() == ["one", "two"]


@pytest.mark.requirement("C-24")
async def test_a_gate_is_answered_by_its_path(session):
    run = await opened(session, ask_two, 2)
    await run.answer("two", "/gate[2]")
    await run.answer("one", "/gate")
    assert await run.wait() == ["one", "two"]


@pytest.mark.requirement("C-24")
async def test_a_gate_is_answered_by_its_node_id_if_that_is_unique(session):
    pair = ParallelNode(
        "pair", session, {"a": GateNode("left", session, "L?"), "b": GateNode("right", session, "R?")}
    )
    session.register_workflow(pair)
    run = await session.start("pair")
    await until(lambda: len(run.pending_gates) == 2)
    await run.answer("r", "right")
    await run.answer("l", "left")
    assert await run.wait() == {"a": "l", "b": "r"}


@pytest.mark.requirement("C-24")
async def test_a_node_id_that_two_open_gates_share_is_rejected(session):
    gate = GateNode("same", session, "Which?")
    session.register_workflow(ParallelNode("pair", session, {"a": gate, "b": gate}))
    run = await session.start("pair")
    await until(lambda: len(run.pending_gates) == 2)
    with pytest.raises(RuntimeError, match="Several open gates have the name 'same'"):
        run.answer_gate("x", "same")
    assert len(run.pending_gates) == 2


@pytest.mark.requirement("D0-13")
async def test_a_late_answer_does_not_answer_the_next_gate(session):
    async def twice(ctx):
        return [await ctx.gate("First?"), await ctx.gate("Second?")]

    run = await opened(session, twice)
    first = run.pending_gate.gate_id
    await run.answer("one", first)
    await at_gate(run)
    with pytest.raises(RuntimeError, match=f"No gate '{first}' pending"):
        await run.answer("one again", first)
    await run.answer("two")
    assert await run.wait() == ["one", "two"]


async def test_exactly_one_of_many_concurrent_answers_is_accepted(file):
    async with Session("test", file) as session:
        run = await opened(session, ask)
        answers = [run.answer(str(number)) for number in range(20)]
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes].count(GateNotOpen) == 19
        assert await run.wait() == "0"
        assert types(run).count("gate_answered") == 1


async def test_an_answer_is_on_disk_when_await_answer_returns(file):
    async with Session("test", file) as session:
        run = await opened(session, ask)
        await run.answer("yes")
        reader = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        rows = reader.execute(
            "SELECT type, path, settles FROM journal WHERE run = ? AND type LIKE 'gate%'", (run.run_id,)
        ).fetchall()
        reader.close()
    assert rows == [("gate_waiting", "/gate", None), ("gate_answered", "/gate", "/gate")]


async def test_an_answer_survives_a_crash_right_after_it_was_acknowledged(file, tmp_path):
    async with Session("test", file) as session:
        run = await opened(session, ask)
        await run.answer("yes")
        copy = copy_store(file, tmp_path / "crashed")
    async with Session("test", copy) as session:
        session.workflow(ask)
        await session.recover()
        assert await within(session.get_workflow_run(run.run_id).wait()) == "yes"


@pytest.mark.requirement("S0-28")
@pytest.mark.requirement("S0-46")
@pytest.mark.requirement("S0-73")
@pytest.mark.requirement("C-11")
async def test_a_gate_that_times_out_is_closed_and_raises(session):
    async def impatient(ctx):
        try:
            await ctx.gate("Continue?", timeout=0.02)
        except TimeoutError:
            return [gate.prompt for gate in ctx._run.pending_gates], ctx._run.state.value

    session.workflow(impatient)
    run = await session.start("impatient")
    assert await run.wait() == [[], "running"]
    event = data_of(run, "gate_timeout")[0]
    assert (event["gate_id"], event["timeout"]) == (data_of(run, "gate_waiting")[0]["gate_id"], 0.02)


@pytest.mark.requirement("D0-4")
@pytest.mark.requirement("S0-28")
async def test_a_gate_with_a_timeout_of_zero_times_out_at_once(session):
    async def never(ctx):
        await ctx.gate("Continue?", timeout=0)

    session.workflow(never)
    with pytest.raises(TimeoutError):
        await within((await session.start("never")).wait())


@pytest.mark.requirement("C-11")
async def test_a_gate_node_that_times_out_is_a_failed_result_and_emits_gate_timeout(session):
    GateNode("approval", session, "Merge?", timeout=0.01)

    async def body(ctx):
        return await ctx.run("approval", None)

    session.workflow(body)
    run = await session.start("body")
    result = await run.wait()
    assert (result["success"], result["error"], result["output"]) == (False, "Gate timeout", None)
    assert data_of(run, "gate_timeout")[0]["timeout"] == 0.01


@pytest.mark.requirement("S0-46")
async def test_one_of_two_gates_timing_out_leaves_the_other_open_and_the_run_waiting(session):
    async def both(ctx):
        return await asyncio.gather(
            ctx.gate("Quick?", timeout=0.01), ctx.gate("Slow?"), return_exceptions=True
        )

    async def body(ctx):
        late, answer = await both(ctx)
        return [type(late).__name__, answer]

    session.workflow(body)
    run = await session.start("body")
    await until(lambda: "gate_timeout" in types(run))
    assert [gate.prompt for gate in run.pending_gates] == ["Slow?"]
    assert run.state is WorkflowState.WAITING
    await run.answer("here")
    assert await run.wait() == ["TimeoutError", "here"]


async def test_a_gate_that_the_body_cancels_is_closed(session):
    async def either(ctx):
        gate = asyncio.ensure_future(ctx.gate("Continue?"))
        await ctx.run("work", None)
        gate.cancel()
        return await ctx.gate("Other?")

    latch = Latch()
    FunctionNode("work", session, latch.leaf)
    session.workflow(either)
    run = await session.start("either")
    await at_gate(run)
    latch.open.set()
    await until(lambda: run.pending_gate and run.pending_gate.prompt == "Other?")
    assert [gate.prompt for gate in run.pending_gates] == ["Other?"]
    assert "gate_cancelled" in types(run)
    await run.answer("done")
    assert await run.wait() == "done"


async def test_a_run_is_waiting_while_a_gate_is_open_beside_a_running_leaf(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    async def body(ctx):
        return await asyncio.gather(ctx.run("work", 1), ctx.gate("Continue?"))

    session.workflow(body)
    run = await session.start("body")
    await latch.entered.wait()
    await at_gate(run)
    assert run.state is WorkflowState.WAITING
    latch.open.set()
    await run.answer("yes")
    assert (await run.wait())[1] == "yes"


@pytest.mark.requirement("S0-73")
@pytest.mark.requirement("C-24")
async def test_an_open_gate_is_the_same_gate_after_a_restart(file):
    async with Session("test", file) as session:
        run = await opened(session, choose)
        before = run.pending_gate
    async with Session("test", file) as session:
        session.workflow(choose)
        (run,) = await session.recover()
        assert run.state is WorkflowState.WAITING
        gate = run.pending_gate
        assert (gate.gate_id, gate.path, gate.prompt) == (before.gate_id, before.path, before.prompt)
        assert gate.choices == ["approve", "reject"]
        with pytest.raises(ValueError, match="Invalid choice"):
            run.answer_gate("maybe")
        run.answer_gate("approve", before.gate_id)
        assert await within(run.wait()) == "approve"


async def test_answers_to_several_gates_after_a_restart_are_all_accepted(file):
    async with Session("test", file) as session:
        await opened(session, ask_two, 2)
    async with Session("test", file) as session:
        session.workflow(ask_two)
        (run,) = await session.recover()
        assert [gate.path for gate in run.pending_gates] == ["/gate", "/gate[2]"]
        run.answer_gate("two", "/gate[2]")
        run.answer_gate("one", "/gate")
        assert await within(run.wait()) == ["one", "two"]


async def test_a_gate_that_timed_out_while_the_process_was_down_times_out_once_on_recovery(file):
    async def impatient(ctx):
        try:
            return await ctx.gate("Continue?", timeout=3600)
        except TimeoutError:
            return "late"

    clock = VirtualClock(skip=False)
    async with Session("test", file, clock=clock) as session:
        await opened(session, impatient)
    clock.jump(hours=1)
    async with Session("test", file, clock=clock) as session:
        session.workflow(impatient)
        (run,) = await session.recover()
        assert await within(run.wait()) == "late"
        assert types(run).count("gate_timeout") == 1


async def test_an_answer_that_is_not_json_is_rejected_and_the_gate_stays_open(session):
    run = await opened(session, ask)
    with pytest.raises(ValueError, match="needs a string, got <object object"):
        await run.answer(object())
    assert (run.state, len(run.pending_gates)) == (WorkflowState.WAITING, 1)
    await run.answer("approved")
    assert await run.wait() == "approved"


async def test_an_answer_that_could_not_be_written_holds_the_run(file):
    async with Session("test", file) as session:
        run = await opened(session, ask)
        session.engine.store.append = refuse_to_write
        run.answer_gate("yes")
        await until(lambda: run.state is WorkflowState.HELD)
        assert run.to_info().held["reason"] == "storage_full"


def refuse_to_write(batch, patience=30.0):
    from nerve.errors import StoreFull

    raise StoreFull("no space left")


async def test_a_gate_in_a_graph_in_a_workflow_function_is_listed_under_its_path(session):
    Graph("review", session).add_step(GateNode("approval", session, lambda given: f"Merge {given}?"))

    async def body(ctx):
        return (await ctx.run_graph("review", "it"))["output"]

    run = await opened(session, body)
    assert run.pending_gate.prompt == "Merge it?"
    assert run.pending_gate.path.startswith("/review/approval")
    await run.answer("yes", run.pending_gate.path)
    assert await run.wait() == "yes"


FORM = {"type": "object", "properties": {"version": {"type": "string"}}, "required": ["version"]}


async def test_a_gate_has_its_form_and_the_answer_is_an_object_also_after_a_restart(file):
    async def body(ctx):
        first = await ctx.gate("Which?", form=FORM)
        await ctx.gate("Sure?")
        return first["version"]

    async with Session("test", file) as session:
        run = await opened(session, body)
        assert run.pending_gate.form == FORM
        with pytest.raises(ValueError, match="JSON object with version"):
            await run.answer("three")
        await run.answer('{"version": "3"}')
        await until(lambda: run.pending_gate is not None)
    async with Session("test", file) as session:
        session.workflow(body)
        (run,) = await session.recover()
        await run.answer("yes")
        assert await within(run.wait()) == "3"


# -- which gates are open ----------------------------------------------------------------------


def family_of(file, number=1):
    session = Session("test", file)

    @session.workflow
    async def child(ctx):
        await ctx.run("work", ctx.input)
        return await ctx.gate(f"Child {ctx.input}?")

    @session.workflow
    async def parent(ctx):
        return await asyncio.gather(*(ctx.run_workflow("child", n) for n in range(number)))

    return session


async def test_a_parent_paused_before_a_restart_lists_and_answers_the_gates_of_its_children(file):
    async with family_of(file) as session:
        counted(session, "work")
        run = await session.start("parent")
        await until(lambda: run.pending_gates)
        await run.pause()
    async with family_of(file) as session:
        counted(session, "work")
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        assert [(gate.path, gate.prompt) for gate in run.pending_gates] == [("/child/gate", "Child 0?")]
        await run.answer("yes")
        assert (run.pending_gates, run.state) == ([], WorkflowState.PAUSED)
        await run.resume()
        assert await within(run.wait()) == ["yes"]


async def test_the_gates_of_children_are_listed_oldest_first_also_after_a_restart(file):
    latches = [Latch() for _ in range(3)]
    async with family_of(file, 3) as session:
        FunctionNode("work", session, lambda context: latches[context.input].leaf(context))
        run = await session.start("parent")
        for opened, number in enumerate((2, 0, 1), 1):
            latches[number].open.set()
            await until(lambda opened=opened: len(run.pending_gates) == opened)
        told = [gate.prompt for gate in run.pending_gates]
        assert told == ["Child 2?", "Child 0?", "Child 1?"]
    async with family_of(file, 3) as session:
        FunctionNode("work", session, lambda context: latches[context.input].leaf(context))
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await until(lambda: len(run.pending_gates) == 3)
        assert [gate.prompt for gate in run.pending_gates] == told
        await run.stop()


async def sleeps(ctx):
    await ctx.run("work", 1)
    await ctx.sleep(1000)
    return await ctx.gate("Delete everything?")


async def asks(ctx):
    await ctx.run("work", 1)
    return await ctx.gate("Delete everything?")


async def sleeps_shortly(ctx):
    await ctx.run("work", 1)
    await ctx.sleep(0.01)
    return await ctx.gate("Delete everything?")


@pytest.mark.parametrize("restart", [False, True])
async def test_a_gate_that_changed_code_does_not_open_is_not_listed(file, restart):
    async with Session("test", file) as session:
        counted(session, "work")
        session.workflow(asks, id="body")
        run = await session.start("body")
        await at_gate(run)
    async with Session("test", file) as session:
        counted(session, "work")
        session.workflow(sleeps, id="body")
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.pause()
        await run.resume()
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        await until(lambda: "timer_started" in types(run))
        assert (run.pending_gates, dict(run.view.gates)) == ([], {})
        with pytest.raises(RuntimeError, match="No gate pending"):
            await run.answer("yes")
        if not restart:
            return
    async with Session("test", file) as session:
        counted(session, "work")
        session.workflow(sleeps, id="body")
        await session.recover()
        assert session.get_workflow_run(run.run_id).pending_gates == []


async def test_a_gate_that_changed_code_opens_later_is_listed_then(file):
    async with Session("test", file) as session:
        counted(session, "work")
        session.workflow(asks, id="body")
        run = await session.start("body")
        await at_gate(run)
    async with Session("test", file) as session:
        counted(session, "work")
        session.workflow(sleeps_shortly, id="body")
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.pause()
        await run.resume()
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        await until(lambda: types(run).count("gate_waiting") == 2)
        await within(run.next_gate())
        await run.answer("yes")
        assert await within(run.wait()) == "yes"
