"""WorkflowRun: its states and its information."""

import asyncio
import gc
import uuid
import weakref
from datetime import UTC, datetime, timedelta

import pytest

from core.workflow.support import Latch, at_gate, counted, data_of, types, until, within
from nerve import FunctionNode, Session
from nerve.core.nodes import Node
from nerve.core.workflow import GateInfo, Workflow, WorkflowRun, WorkflowRunInfo, WorkflowState
from nerve.core.workflow.run import new_run_id
from nerve.errors import NodeFailed, WorkflowFailed


async def ask(ctx):
    return await ctx.gate("Continue?")


async def simple(ctx):
    return "done"


async def broken(ctx):
    raise KeyError("gone")


class TestWorkflowRun:
    """The documented tests, under their names."""

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-69")
    @pytest.mark.asyncio
    async def test_simple_workflow_completes(self):
        session = Session(name="test")

        async def simple(ctx):
            return "done"

        workflow = Workflow(id="simple", session=session, fn=simple)
        run = WorkflowRun(workflow=workflow, input="test")

        await run.start()
        result = await run.wait()

        assert result == "done"
        assert run.state == WorkflowState.COMPLETED

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-69")
    @pytest.mark.requirement("S0-46")
    @pytest.mark.asyncio
    async def test_gate_pauses_execution(self):
        session = Session(name="test")
        gate_reached = asyncio.Event()

        async def with_gate(ctx):
            gate_reached.set()
            answer = await ctx.gate("Continue?")
            return f"answered: {answer}"

        workflow = Workflow(id="gated", session=session, fn=with_gate)
        run = WorkflowRun(workflow=workflow, input="test")

        await run.start()
        await gate_reached.wait()

        assert run.state == WorkflowState.WAITING
        assert run.pending_gate is not None

        run.answer_gate("yes")
        result = await run.wait()

        assert result == "answered: yes"


def made(session, fn=simple, input=None, **options) -> WorkflowRun:
    workflow = session.get_workflow(fn.__name__) or Workflow(fn.__name__, session, fn)
    return WorkflowRun(workflow, input, **options)


@pytest.mark.requirement("S0-33")
def test_a_gate_has_its_id_prompt_choices_and_creation_time():
    gate = GateInfo("1a2b3c4d", "Continue?", ["yes", "no"], None)
    assert (gate.gate_id, gate.prompt, gate.choices, gate.future) == (
        "1a2b3c4d",
        "Continue?",
        ["yes", "no"],
        None,
    )
    assert gate.created_at.utcoffset() == timedelta(0)


@pytest.mark.requirement("S0-34")
@pytest.mark.requirement("S0-48")
@pytest.mark.requirement("D0-9")
async def test_the_info_of_a_run_is_json(session):
    run = made(session, ask)
    told = run.to_info().to_dict()
    assert (told["state"], told["started_at"], told["completed_at"]) == ("pending", None, None)
    await run.start()
    await at_gate(run)
    told = run.to_info().to_dict()
    assert told["pending_gate"] == {
        "gate_id": run.pending_gate.gate_id,
        "prompt": "Continue?",
        "choices": None,
    }
    assert told["started_at"] == run.to_info().started_at.isoformat()
    await run.answer("yes")
    await run.wait()
    info = run.to_info()
    assert isinstance(info, WorkflowRunInfo)
    told = info.to_dict()
    assert (told["run_id"], told["workflow_id"], told["state"]) == (run.run_id, "ask", "completed")
    assert (told["result"], told["error"], told["pending_gate"]) == ("yes", None, None)
    assert told["completed_at"] == info.completed_at.isoformat()


@pytest.mark.requirement("S0-34")
@pytest.mark.requirement("D0-10")
async def test_the_times_of_a_run_are_in_utc(session):
    run = made(session)
    await run.start()
    await run.wait()
    info = run.to_info()
    assert info.started_at <= info.completed_at
    assert info.started_at.utcoffset() == info.completed_at.utcoffset() == timedelta(0)


@pytest.mark.requirement("S0-35")
@pytest.mark.requirement("C-05")
@pytest.mark.requirement("C-26")
async def test_a_run_accepts_the_documented_arguments_and_its_id_is_a_sortable_uuid(session):
    heard = []
    workflow = Workflow("simple", session, simple)
    first, second = WorkflowRun(workflow, "in", {"p": 1}, heard.append), WorkflowRun(workflow, "in")
    assert uuid.UUID(first.run_id).version == uuid.UUID(second.run_id).version == 7
    assert first.run_id != second.run_id
    assert first.run_id[:8] <= second.run_id[:8]


@pytest.mark.requirement("C-05")
def test_every_run_id_is_a_uuid_of_version_seven(session):
    ids = [new_run_id() for _ in range(2000)]
    assert {uuid.UUID(text).version for text in ids} == {7}
    assert {uuid.UUID(text).variant for text in ids} == {uuid.RFC_4122}
    assert ids == sorted(ids)
    assert len({text[19:] for text in ids}) == len(ids)


@pytest.mark.requirement("S0-36")
async def test_a_run_goes_from_pending_to_running_waiting_and_completed(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    async def body(ctx):
        await ctx.run("work", None)
        return await ctx.gate("Continue?")

    run = made(session, body)
    seen = [run.state]
    await run.start()
    await latch.entered.wait()
    seen.append(run.state)
    latch.open.set()
    await at_gate(run)
    seen.append(run.state)
    run.answer_gate("yes")
    seen.append(run.state)
    await run.wait()
    seen.append(run.state)
    assert [state.value for state in seen] == ["pending", "running", "waiting", "running", "completed"]


@pytest.mark.requirement("S0-37")
@pytest.mark.parametrize(("fn", "state"), [(simple, "completed"), (broken, "failed"), (ask, "cancelled")])
async def test_a_run_is_complete_in_each_final_state(session, fn, state):
    run = made(session, fn)
    assert not run.is_complete
    await run.start()
    assert not run.is_complete
    if fn is ask:
        await run.cancel()
    await asyncio.wait([asyncio.ensure_future(run.wait())])
    assert (run.state.value, run.is_complete, run.pending_gate) == (state, True, None)
    assert (run.workflow_id, run.view.state) == (fn.__name__, state)


@pytest.mark.requirement("S0-38")
async def test_start_returns_while_the_run_continues_in_the_background(session):
    latch = Latch()
    FunctionNode("work", session, latch.leaf)

    async def body(ctx):
        return (await ctx.run("work", 1))["output"]

    run = made(session, body)
    await within(run.start())
    assert run.state is WorkflowState.RUNNING
    latch.open.set()
    assert await run.wait() == 1


@pytest.mark.requirement("S0-38")
async def test_a_run_cannot_be_started_twice(session):
    run = made(session)
    await run.start()
    with pytest.raises(RuntimeError, match="Cannot start run in state running"):
        await run.start()
    await run.wait()
    with pytest.raises(RuntimeError, match="Cannot start run in state completed"):
        await run.start()


@pytest.mark.requirement("S0-39")
@pytest.mark.requirement("S0-40")
@pytest.mark.requirement("S1-33")
async def test_a_completed_run_emits_its_start_and_its_result(session):
    run = made(session)
    await run.start()
    await run.wait()
    assert types(run) == ["workflow_started", "workflow_completed"]
    started, completed = run.events
    assert (started.data["run_id"], started.data["workflow_id"]) == (run.run_id, "simple")
    assert (completed.data["run_id"], completed.data["result"]) == (run.run_id, "done")
    assert completed.data["duration_s"] >= 0
    assert run.to_info().result == "done"


@pytest.mark.requirement("S0-41")
async def test_a_failed_run_emits_the_error(session):
    async def refuse(ctx):
        raise ValueError("no input")

    run = made(session, refuse)
    await run.start()
    with pytest.raises(ValueError, match="no input"):
        await run.wait()
    event = data_of(run, "workflow_failed")[0]
    assert (event["run_id"], event["error"], event["error_type"]) == (run.run_id, "no input", "ValueError")
    assert (run.to_info().error, run.to_info().state) == ("no input", WorkflowState.FAILED)


@pytest.mark.requirement("S0-42")
@pytest.mark.requirement("S0-29")
@pytest.mark.requirement("D0-5")
async def test_cancel_while_waiting_raises_in_the_function_and_closes_its_gate(session):
    seen = []

    async def wait(ctx):
        try:
            await ctx.gate("Continue?")
        except asyncio.CancelledError as error:
            seen.append(type(error))
            raise

    run = made(session, wait)
    await run.start()
    await at_gate(run)
    await run.cancel()
    assert seen == [asyncio.CancelledError]
    assert (run.state, run.pending_gate, run.pending_gates) == (WorkflowState.CANCELLED, None, [])
    assert data_of(run, "workflow_cancelled")[0]["run_id"] == run.run_id
    assert run.view.gates == {}


@pytest.mark.requirement("S0-43")
@pytest.mark.requirement("D0-8")
async def test_wait_raises_the_exception_itself(session):
    class Mine(Exception):
        pass

    error = Mine("told")

    async def refuse(ctx):
        raise error

    run = made(session, refuse)
    await run.start()
    with pytest.raises(Mine) as caught:
        await run.wait()
    assert caught.value is error


@pytest.mark.requirement("S0-43")
async def test_wait_on_a_cancelled_run_raises_cancelled_error(session):
    run = made(session, ask)
    await run.start()
    await run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run.wait()


@pytest.mark.requirement("S0-43")
async def test_waiting_for_a_run_that_was_not_started_is_rejected(session):
    with pytest.raises(RuntimeError, match="Workflow not started"):
        await made(session).wait()


@pytest.mark.requirement("S0-43")
async def test_several_tasks_can_wait_for_one_run_and_one_can_be_cancelled(session):
    run = made(session, ask)
    await run.start()
    waiters = [asyncio.create_task(run.wait()) for _ in range(3)]
    await at_gate(run)
    waiters[0].cancel()
    await run.answer("yes")
    assert await asyncio.gather(*waiters[1:]) == ["yes", "yes"]
    assert run.state is WorkflowState.COMPLETED


@pytest.mark.requirement("S0-44")
async def test_cancel_is_idempotent_and_waits_for_the_end_of_the_function(session):
    ended = []

    async def tidy(ctx):
        try:
            await ctx.gate("Continue?")
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)

    run = made(session, tidy)
    await run.start()
    await at_gate(run)
    await run.cancel()
    assert ended == [True]
    await run.cancel()
    assert types(run).count("workflow_cancelled") == 1


@pytest.mark.requirement("S0-44")
async def test_cancelling_a_finished_run_changes_nothing(session):
    run = made(session)
    await run.start()
    await run.wait()
    await run.cancel()
    assert run.state is WorkflowState.COMPLETED


@pytest.mark.requirement("S0-44")
async def test_two_cancels_at_once_both_return_and_only_one_is_written(session):
    run = made(session, ask)
    await run.start()
    await at_gate(run)
    await within(asyncio.gather(run.cancel(), run.cancel()))
    assert run.state is WorkflowState.CANCELLED
    assert types(run).count("workflow_cancelled") == 1


async def test_cancelling_a_run_that_was_never_started_is_harmless(session):
    run = made(session)
    await run.cancel()
    assert run.state is WorkflowState.PENDING


@pytest.mark.requirement("D0-11")
async def test_an_unreferenced_finished_run_is_freed(session):
    run = made(session)
    await run.start()
    await run.wait()
    seen, run_id = weakref.ref(run), run.run_id
    del run
    await until(lambda: gc.collect() >= 0 and seen() is None)
    assert session.engine.executors == {}
    assert session.get_workflow_run(run_id).to_info().result == "done"


@pytest.mark.requirement("D0-6")
@pytest.mark.requirement("D0-7")
@pytest.mark.requirement("S0-72")
async def test_a_run_has_all_its_events_in_order_without_a_sink(session):
    counted(session, "echo")

    async def body(ctx):
        for number in range(3):
            ctx.emit("progress", {"number": number})
            await ctx.run("echo", number)
        ctx.emit("last")

    run = made(session, body)
    await run.start()
    await run.wait()
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
    assert types(run)[1:-1] == ["progress", "node_started", "node_completed"] * 3 + ["last"]
    assert [event.seq for event in await run.history(after=9)] == [10, 11, 12]


async def test_an_exception_group_of_a_task_group_fails_the_run(session):
    async def body(ctx):
        async with asyncio.TaskGroup() as group:
            group.create_task(broken(ctx))

    run = made(session, body)
    await run.start()
    with pytest.raises(ExceptionGroup):
        await run.wait()
    assert data_of(run, "workflow_failed")[0]["error_type"] == "ExceptionGroup"


async def test_a_body_that_raises_cancelled_error_fails_and_is_not_cancelled(session):
    async def body(ctx):
        raise asyncio.CancelledError

    run = made(session, body)
    await run.start()
    with pytest.raises(RuntimeError, match="ancelled"):
        await within(run.wait())
    assert run.state is WorkflowState.FAILED


class Odd(BaseException):
    """An exception that `except Exception` does not catch."""


@pytest.mark.parametrize("error", [Odd("out of the ordinary"), SystemExit(2), GeneratorExit("early")])
async def test_a_base_exception_fails_the_run_and_is_wrapped_for_waiters(session, error):
    async def body(ctx):
        raise error

    run = made(session, body)
    await run.start()
    with pytest.raises(WorkflowFailed, match=f"failed: {type(error).__name__}: {error}") as caught:
        await within(run.wait())
    assert caught.value.__cause__ is error
    told = data_of(run, "workflow_failed")[0]["error_type"]
    assert (run.state, told) == (WorkflowState.FAILED, type(error).__name__)


class Leaves(Node):
    """A custom leaf."""

    async def execute(self, context):
        raise SystemExit(2)


async def test_system_exit_in_a_custom_node_fails_that_node(session):
    Leaves("leaves", session)

    async def body(ctx):
        try:
            await ctx.run("leaves")
        except NodeFailed as failed:
            return str(failed)

    run = made(session, body)
    await run.start()
    assert await within(run.wait()) == "/leaves: SystemExit: 2"


async def test_a_result_that_is_not_json_fails_the_run_and_names_the_type(session):
    async def body(ctx):
        return {"answer": {1, 2}}

    run = made(session, body)
    await run.start()
    with pytest.raises(TypeError, match="type set at answer"):
        await within(run.wait())
    assert run.state is WorkflowState.FAILED


async def test_unfinished_tasks_of_the_body_end_with_it(session):
    latch, ended = Latch(), []
    FunctionNode("work", session, latch.leaf)

    async def aside(ctx):
        try:
            await ctx.run("work", None)
        finally:
            ended.append(True)

    async def body(ctx):
        ctx.state["task"] = asyncio.create_task(aside(ctx))
        await latch.entered.wait()
        return "done"

    run = made(session, body)
    await run.start()
    assert await within(run.wait()) == "done"
    assert ended == [True]


@pytest.mark.requirement("S0-59")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_the_time_of_the_end_is_the_same_everywhere(file, end):
    async def body(ctx):
        if await ctx.gate("Well?") == "failed":
            raise ValueError("no")

    async with Session("test", file) as session:
        Workflow("body", session, body)
        run = await session.start("body")
        await at_gate(run)
        if end == "cancelled":
            await run.stop()
        else:
            await run.answer(end)
        await within(run.wait_until_ended())
        told = run.to_info().completed_at
        assert told is not None
        assert told == run.events[-1].timestamp == run.view.ended_at
        row = session.engine.store.run(run.run_id)
        assert row is not None
        assert datetime.fromtimestamp(row.ended, UTC) == told
    async with Session("test", file) as session:
        Workflow("body", session, body)
        (again,) = session.list_workflow_runs()
        assert again.completed_at == told
