"""WorkflowContext: run, gate, emit and state."""

import asyncio
import dataclasses

import pytest

from core.workflow.support import at_gate, counted, data_of, types
from nerve import BashNode, ExecutionContext, FunctionNode, Graph, MockNode, Node, Session, WorkflowContext
from nerve.errors import NodeFailed, NotJson


class Broken(Node):
    """A node that raises instead of returning a failed result."""

    async def execute(self, context):
        raise LookupError("nothing there")


class Bare:
    """An object with `execute` that is not a Node."""

    async def execute(self, context):
        return {"output": context.input}


async def wait_for_ever(context):
    await asyncio.Event().wait()


async def finished(session, body, input=None, params=None):
    session.workflow(body, id="body")
    run = await session.start("body", input, params)
    await asyncio.wait([asyncio.ensure_future(run.wait())])
    return run


class TestWorkflowContext:
    """The documented tests, under their names."""

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-71")
    @pytest.mark.requirement("S0-24")
    @pytest.mark.asyncio
    async def test_run_executes_node(self):
        session = Session(name="test")
        FunctionNode(
            id="echo",
            session=session,
            fn=lambda ctx: {"output": ctx.input.upper()},
        )

        ctx = WorkflowContext(session=session, input="test")
        result = await ctx.run("echo", "hello")

        assert result["output"] == "HELLO"

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-19")
    @pytest.mark.asyncio
    async def test_run_unknown_node_raises(self):
        session = Session(name="test")
        ctx = WorkflowContext(session=session, input="test")

        with pytest.raises(ValueError, match="not found"):
            await ctx.run("nonexistent", "input")


@pytest.mark.requirement("S0-03")
@pytest.mark.requirement("S0-16")
async def test_a_workflow_function_gets_session_input_params_and_state(session):
    async def body(ctx):
        assert ctx.session is session
        ctx.state["seen"] = [ctx.input, ctx.params]
        return ctx.state

    run = await finished(session, body, "hello", {"depth": 3})
    assert await run.wait() == {"seen": ["hello", {"depth": 3}]}


@pytest.mark.requirement("S0-16")
def test_the_context_is_a_dataclass_with_the_seeds_fields(session):
    fields = {field.name: field for field in dataclasses.fields(WorkflowContext)}
    assert list(fields)[:4] == ["session", "input", "params", "state"]
    assert not fields["_run"].repr
    one, other = WorkflowContext(session, 1), WorkflowContext(session, 2)
    assert (one.params, one.state, one._run) == ({}, {}, None)
    assert one.state is not other.state


@pytest.mark.requirement("S0-17")
async def test_further_keywords_of_run_go_to_the_execution_context(session):
    seen = []

    async def look(context: ExecutionContext):
        seen.append((context.workflow_id, context.auto_approve))

    FunctionNode("look", session, look)

    async def body(ctx):
        await ctx.run("look", None, workflow_id="other", auto_approve=True)

    await (await finished(session, body)).wait()
    assert seen == [("other", True)]


@pytest.mark.parametrize("name", ["path", "overrides"])
async def test_fields_that_the_run_provides_are_not_options_of_a_call(session, name):
    FunctionNode("look", session, lambda context: None)

    async def body(ctx):
        await ctx.run("look", None, **{name: None})

    with pytest.raises(TypeError, match=f"Unknown option '{name}' of ctx.run"):
        await (await finished(session, body)).wait()


@pytest.mark.requirement("S0-18")
@pytest.mark.requirement("S0-71")
@pytest.mark.requirement("D0-14")
@pytest.mark.requirement("D0-17")
async def test_a_result_has_the_same_keys_whether_it_succeeded_or_failed(session):
    FunctionNode("good", session, lambda context: {"output": 1, "attributes": {"cost": 2}})
    FunctionNode("bad", session, lambda context: {"success": False, "error": "no"})

    async def body(ctx):
        return [await ctx.run("good", None), await ctx.run("bad", None)]

    good, bad = await (await finished(session, body)).wait()
    assert good == {"success": True, "output": 1, "attributes": {"cost": 2}}
    assert (bad["success"], bad["error"], bad["attributes"]) == (False, "no", {})


@pytest.mark.requirement("S0-19")
async def test_an_unknown_node_fails_the_run_with_a_value_error_that_suggests_one(session):
    counted(session, "reviewer")

    async def body(ctx):
        await ctx.run("reviewr", None)

    run = await finished(session, body)
    with pytest.raises(ValueError, match=r"Node 'reviewr' not found.*Did you mean 'reviewer'"):
        await run.wait()


@pytest.mark.requirement("S0-20")
@pytest.mark.requirement("S0-23")
async def test_a_call_emits_node_started_and_node_completed(session):
    counted(session, "echo")

    async def body(ctx):
        return await ctx.run("echo", "hello")

    run = await finished(session, body)
    assert types(run) == ["workflow_started", "node_started", "node_completed", "workflow_completed"]
    assert data_of(run, "node_started")[0]["node_id"] == "echo"
    completed = data_of(run, "node_completed")[0]
    assert (completed["node_id"], completed["success"]) == ("echo", True)


@pytest.mark.requirement("S0-23")
@pytest.mark.requirement("D0-14")
@pytest.mark.requirement("D0-17")
async def test_a_function_that_raises_is_a_completed_call_without_success(session):
    FunctionNode("bad", session, lambda context: 1 / 0)

    async def body(ctx):
        return await ctx.run("bad", None)

    result = await (run := await finished(session, body)).wait()
    assert (result["success"], result["error_type"]) == (False, "ZeroDivisionError")
    assert data_of(run, "node_completed")[0]["success"] is False


@pytest.mark.requirement("S0-21")
@pytest.mark.requirement("S0-73")
async def test_a_call_that_takes_too_long_emits_node_timeout_and_raises(session):
    async def slow(context):
        await asyncio.Event().wait()

    FunctionNode("slow", session, slow)

    async def body(ctx):
        try:
            await ctx.run("slow", None, timeout=0.02)
        except TimeoutError as error:
            return f"late: {error}"

    run = await finished(session, body)
    assert await run.wait() == "late: node 'slow' timed out after 0.02 s"
    event = data_of(run, "node_timeout")[0]
    assert (event["node_id"], event["timeout"]) == ("slow", 0.02)


@pytest.mark.requirement("S0-21")
@pytest.mark.requirement("D0-4")
async def test_a_timeout_of_zero_seconds_is_zero_seconds(session):
    async def slow(context):
        await asyncio.Event().wait()

    FunctionNode("slow", session, slow)

    async def body(ctx):
        await ctx.run("slow", None, timeout=0)

    with pytest.raises(TimeoutError):
        await (await finished(session, body)).wait()


@pytest.mark.requirement("S0-22")
@pytest.mark.requirement("D0-17")
async def test_a_node_that_raises_emits_node_error_and_run_raises_node_failed(session):
    Broken("broken", session)

    async def body(ctx):
        try:
            await ctx.run("broken", None)
        except NodeFailed as error:
            return [error.path, error.error_type, error.error, type(error.__cause__).__name__]

    run = await finished(session, body)
    assert await run.wait() == ["/broken", "LookupError", "nothing there", "LookupError"]
    event = data_of(run, "node_error")[0]
    assert (event["node_id"], event["error"]) == ("broken", "nothing there")


@pytest.mark.requirement("S0-24")
@pytest.mark.requirement("S0-21")
async def test_an_unattached_run_raises_on_timeout_too(session):
    async def slow(context):
        await asyncio.Event().wait()

    FunctionNode("slow", session, slow)
    with pytest.raises(TimeoutError):
        await WorkflowContext(session, None).run("slow", None, timeout=0.01)


@pytest.mark.requirement("S0-24")
@pytest.mark.requirement("S0-22")
async def test_an_unattached_run_of_a_node_that_raises_raises_node_failed(session):
    Broken("broken", session)
    with pytest.raises(NodeFailed, match="nothing there"):
        await WorkflowContext(session, None).run("broken", None)


@pytest.mark.requirement("S0-17")
async def test_any_object_with_execute_can_be_registered_as_a_node(session):
    session.nodes["bare"] = Bare()

    async def body(ctx):
        return (await ctx.run("bare", "hi"))["output"]

    assert await (await finished(session, body)).wait() == "hi"


@pytest.mark.requirement("S0-71")
async def test_a_bash_node_runs_in_a_workflow(session):
    BashNode("shell", session)

    async def body(ctx):
        return await ctx.run("shell", "echo hello; exit 3")

    result = await (await finished(session, body)).wait()
    assert (result["success"], result["output"], result["attributes"]["exit_code"]) == (False, "hello\n", 3)


@pytest.mark.requirement("S0-25")
@pytest.mark.requirement("S0-30")
async def test_a_gate_without_a_timeout_waits_and_returns_the_answer(session):
    async def body(ctx):
        return await ctx.gate("Continue?")

    session.workflow(body)
    run = await session.start("body")
    await at_gate(run)
    assert run.pending_gate.deadline is None
    run.answer_gate("yes")
    assert await run.wait() == "yes"


@pytest.mark.requirement("S0-26")
@pytest.mark.requirement("C-25")
async def test_a_gate_on_an_unattached_context_raises(session):
    with pytest.raises(RuntimeError, match="WorkflowContext not attached to a WorkflowRun"):
        await WorkflowContext(session, None).gate("Continue?")


@pytest.mark.requirement("S1-14")
@pytest.mark.requirement("C-25")
async def test_receive_gate_input_answers_the_open_gate_of_an_attached_context(session):
    contexts = []

    async def body(ctx):
        contexts.append(ctx)
        return await ctx.gate("Continue?")

    session.workflow(body)
    run = await session.start("body")
    await at_gate(run)
    contexts[0].receive_gate_input("go on")
    assert await run.wait() == "go on"


@pytest.mark.requirement("S0-32")
async def test_without_a_run_the_sink_receives_events_of_the_workflow_and_its_nodes(session):
    seen = []
    FunctionNode("look", session, lambda context: None)

    @session.workflow
    async def shown(ctx):
        ctx.emit("mine")
        await ctx.run("look")

    await session.workflows["shown"].execute(ExecutionContext(session, event_sink=seen.append))
    assert [event.event_type for event in seen] == ["mine", "node_started", "node_completed"]


def test_emit_on_an_unattached_context_is_ignored(session):
    assert WorkflowContext(session, None).emit("progress", {"percent": 50}) is None


@pytest.mark.requirement("S0-32")
@pytest.mark.requirement("C-09")
async def test_any_name_can_be_emitted_and_data_defaults_to_an_empty_dict(session):
    async def body(ctx):
        ctx.emit("progress")
        ctx.emit("Любое имя", {"percent": 50})

    run = await finished(session, body)
    assert [(e.event_type, e.data) for e in run.events[1:-1]] == [
        ("progress", {}),
        ("Любое имя", {"percent": 50}),
    ]


async def test_a_user_event_with_a_reserved_name_does_not_forge_an_engine_event(session):
    async def body(ctx):
        ctx.emit("node_completed", {"node_id": "forged"})

    run = await finished(session, body)
    await run.wait()
    assert [event.data for event in run.events if event.event_type == "user:node_completed"] == [
        {"node_id": "forged"}
    ]
    assert not run.view.nodes


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"run_id": 5}, "The name of a run must be a string"),
        ({"event_sink": 5}, "event_sink must be callable"),
    ],
)
async def test_an_invalid_run_id_or_sink_is_rejected_in_the_call(session, option, message):
    FunctionNode("look", session, lambda context: None)

    async def body(ctx):
        await ctx.run("look", None, **option)

    with pytest.raises(ValueError, match=message):
        await (await finished(session, body)).wait()


async def test_what_is_emitted_must_be_json_and_the_message_names_the_type(session):
    async def body(ctx):
        ctx.emit("progress", {"at": object()})

    with pytest.raises(NotJson, match="object at at"):
        await (await finished(session, body)).wait()


@pytest.mark.requirement("S1-13")
async def test_run_graph_executes_a_graph_by_its_name(session):
    Graph("pipeline", session).chain(
        FunctionNode("one", session, lambda context: context.input + 1),
        FunctionNode("two", session, lambda context: context.input * 10),
    )

    async def body(ctx):
        return (await ctx.run_graph("pipeline", 1))["output"]

    run = await finished(session, body)
    assert await run.wait() == 20
    assert {event.path for event in run.events} >= {"/pipeline", "/pipeline/one", "/pipeline/two"}


@pytest.mark.requirement("S1-13")
async def test_an_unknown_graph_is_a_value_error(session):
    with pytest.raises(ValueError, match="Graph 'nowhere' not found"):
        await WorkflowContext(session, None).run_graph("nowhere")


@pytest.mark.requirement("S0-74")
async def test_run_parallel_returns_results_in_order(session):
    first = asyncio.Event()

    async def slow(context):
        await first.wait()
        return "slow"

    async def quick(context):
        first.set()
        return "quick"

    FunctionNode("slow", session, slow)
    FunctionNode("quick", session, quick)

    async def body(ctx):
        return [r["output"] for r in await ctx.run_parallel([("slow", 1), ("quick", 2)])]

    assert await (await finished(session, body)).wait() == ["slow", "quick"]


@pytest.mark.requirement("S0-74")
async def test_run_parallel_returns_failures_and_does_not_raise(session):
    Broken("broken", session)
    FunctionNode("late", session, wait_for_ever, timeout=0.01)
    MockNode("good", session, ["fine"])

    async def body(ctx):
        return await ctx.run_parallel([("broken", 1), ("good", 2), ("late", 4), ("good", object())])

    results = await (await finished(session, body)).wait()
    assert [r["success"] for r in results] == [False, True, False, False]
    assert [r.get("error_type") for r in results] == ["LookupError", None, "TimeoutError", "NotJson"]


async def test_an_unknown_name_in_run_parallel_raises_before_anything_starts(session):
    seen = counted(session, "good")

    async def body(ctx):
        return await ctx.run_parallel([("good", 1), ("goood", 2)])

    with pytest.raises(ValueError, match=r"Node 'goood' not found in session. Did you mean 'good'\?"):
        await (await finished(session, body)).wait()
    assert seen == []


async def test_the_output_of_a_failed_result_cannot_be_taken_for_a_value(session):
    async def fail(context):
        raise ValueError("no such page")

    FunctionNode("fetch", session, fail)

    async def body(ctx):
        [result] = await ctx.run_parallel([("fetch", 1)])
        assert (result.get("output"), result.output) == (None, None)
        return result["output"]

    with pytest.raises(NodeFailed, match=r"^/fetch: ValueError: no such page$") as error:
        await (await finished(session, body)).wait()
    assert isinstance(error.value, KeyError)


@pytest.mark.requirement("S0-74")
async def test_run_parallel_works_unattached_and_with_nothing_to_do(session):
    MockNode("good", session, ["fine"])
    ctx = WorkflowContext(session, None)
    assert [r["output"] for r in await ctx.run_parallel([("good", 1)])] == ["fine"]
    assert await ctx.run_parallel([]) == []


async def test_the_path_of_a_call_is_assigned_when_it_is_made_not_when_it_is_awaited(session):
    counted(session, "echo")

    async def body(ctx):
        one, two = ctx.run("echo", "first"), ctx.run("echo", "second")
        return [(await two)["output"], (await one)["output"]]

    run = await finished(session, body)
    started = {event.path: event.data["input"] for event in run.events if event.event_type == "node_started"}
    assert started == {"/echo": "first", "/echo[2]": "second"}
