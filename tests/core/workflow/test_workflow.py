"""Workflow: registration and execution."""

import asyncio
from datetime import timedelta

import pytest

from core.workflow.support import counted
from nerve import BashNode, ExecutionContext, Graph, Retry, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.core.nodes import FunctionNode
from nerve.core.workflow import Workflow, WorkflowInfo, WorkflowState
from nerve.errors import WorkflowFailed
from nerve.testing import ScriptedProvider


async def nothing(ctx):
    return None


class TestWorkflow:
    """The documented tests, under their names."""

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-13")
    @pytest.mark.requirement("S0-69")
    def test_creates_and_registers(self):
        session = Session(name="test")

        async def my_fn(ctx):
            return "done"

        workflow = Workflow(id="test", session=session, fn=my_fn)

        assert "test" in session.workflows
        assert session.workflows["test"] is workflow

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-09")
    @pytest.mark.requirement("S0-15")
    def test_duplicate_id_raises(self):
        session = Session(name="test")
        Workflow(id="test", session=session, fn=lambda ctx: None)

        with pytest.raises(ValueError, match="conflicts"):
            Workflow(id="test", session=session, fn=lambda ctx: None)

    @pytest.mark.requirement("S0-70")
    @pytest.mark.requirement("S0-71")
    def test_id_collision_with_node(self):
        session = Session(name="test")
        BashNode(id="runner", session=session)

        with pytest.raises(ValueError, match="conflicts with existing node"):
            Workflow(id="runner", session=session, fn=lambda ctx: None)


@pytest.mark.requirement("S0-06")
@pytest.mark.requirement("C-16")
def test_the_states_have_the_documented_values_and_those_of_pause_and_hold():
    assert {state.name: state.value for state in WorkflowState} == {
        name: name.lower()
        for name in (
            "PENDING", "RUNNING", "WAITING", "PAUSING", "PAUSED", "STOPPING", "COMPLETED", "FAILED",
            "CANCELLED", "HELD",
        )
    }  # fmt: skip


@pytest.mark.requirement("S0-07")
def test_the_info_of_a_workflow_is_json(session):
    info = Workflow("review", session, nothing, description="Reviews code").to_info()
    assert info == WorkflowInfo("review", "Reviews code", info.created_at)
    assert info.to_dict() == {
        "id": "review",
        "description": "Reviews code",
        "created_at": info.created_at.isoformat(),
    }


@pytest.mark.requirement("S0-08")
@pytest.mark.requirement("S0-11")
@pytest.mark.requirement("C-26")
def test_a_workflow_accepts_the_documented_arguments_in_their_order(session):
    workflow = Workflow("review", session, nothing, "Reviews code", {"team": "core"})
    assert (workflow.description, workflow.metadata) == ("Reviews code", {"team": "core"})
    assert Workflow("other", session, nothing).metadata == {}


@pytest.mark.requirement("S0-09")
@pytest.mark.requirement("S0-52")
def test_a_workflow_cannot_use_the_id_of_a_graph(session):
    Graph("pipeline", session)
    with pytest.raises(ValueError, match="conflicts with existing graph"):
        Workflow("pipeline", session, nothing)


@pytest.mark.requirement("S0-09")
def test_a_node_cannot_use_the_id_of_a_workflow(session):
    Workflow("review", session, nothing)
    with pytest.raises(ValueError, match="conflicts with existing workflow"):
        FunctionNode("review", session, lambda context: None)


def test_a_rejected_workflow_is_not_registered(session):
    with pytest.raises(ValueError, match="Invalid workflow ID"):
        Workflow("no spaces", session, nothing)
    assert session.workflows == {}


@pytest.mark.requirement("S0-10")
def test_the_description_is_the_functions_docstring_unless_given(session):
    async def documented(ctx):
        """Review code until approved."""

    assert Workflow("documented", session, documented).description == "Review code until approved."
    assert Workflow("given", session, documented, description="Mine").description == "Mine"
    assert Workflow("silent", session, nothing).description == ""


@pytest.mark.requirement("S0-12")
@pytest.mark.requirement("D0-10")
def test_a_workflow_has_its_creation_time_in_utc(session):
    made = Workflow("review", session, nothing).to_info().created_at
    assert made.utcoffset() == timedelta(0)


@pytest.mark.requirement("S0-14")
def test_a_workflow_shows_its_id_and_its_properties_cannot_be_set(session):
    workflow = Workflow("review", session, nothing, "Reviews code")
    assert repr(workflow) == "Workflow(id='review')"
    assert (workflow.id, workflow.session, workflow.fn) == ("review", session, nothing)
    for name in ("id", "session", "fn", "description"):
        with pytest.raises(AttributeError):
            setattr(workflow, name, "other")


@pytest.mark.requirement("S0-15")
@pytest.mark.requirement("D0-16")
async def test_a_plain_function_can_be_a_workflow(session):
    Workflow("double", session, lambda ctx: ctx.input * 2)
    run = await session.start("double", 21)
    assert await run.wait() == 42


@pytest.mark.requirement("S0-15")
async def test_a_plain_function_can_return_an_awaitable(session):
    async def later(ctx):
        return await ctx.run("upper", ctx.input)

    FunctionNode("upper", session, lambda context: context.input.upper())
    Workflow("shout", session, lambda ctx: later(ctx))
    assert (await (await session.start("shout", "hey")).wait())["output"] == "HEY"


@pytest.mark.requirement("S1-12")
@pytest.mark.requirement("C-25")
async def test_execute_with_an_input_runs_the_function_and_returns_its_value(session):
    async def greet(ctx: WorkflowContext):
        return f"{ctx.params['greeting']} {ctx.input}"

    workflow = Workflow("greet", session, greet)
    assert await workflow.execute("you", {"greeting": "hello"}) == "hello you"
    assert session.list_workflow_runs() == []


@pytest.mark.requirement("C-25")
async def test_execute_with_an_execution_context_makes_it_a_node(session):
    async def double(ctx):
        return ctx.input * 2

    workflow = Workflow("double", session, double)
    result = await workflow.execute(ExecutionContext(session, 21))
    assert (result["success"], result["output"]) == (True, 42)


@pytest.mark.requirement("C-25")
async def test_a_failing_workflow_executed_as_a_node_is_a_failed_result_in_a_graph(session):
    async def broken(ctx):
        raise KeyError("gone")

    graph = Graph("around", session).add_step(Workflow("broken", session, broken))
    result = await graph.execute(ExecutionContext(session, None))
    assert (result["success"], result["error_type"]) == (False, "KeyError")


@pytest.mark.requirement("C-07")
def test_functions_and_graphs_have_the_same_workflow_interface(session):
    graph = Graph("pipeline", session).add_step(FunctionNode("one", session, lambda context: 1))
    assert Workflow("function", session, nothing).kind == "python"
    assert session.register_workflow(graph).kind == "graph"


def test_a_workflow_needs_either_a_function_or_a_body(session):
    with pytest.raises(ValueError, match="a function or a body"):
        Workflow("empty", session)


@pytest.mark.requirement("S0-67")
def test_the_documented_import_paths_and_names_exist():
    from nerve.core import workflow
    from nerve.core.workflow.context import WorkflowContext as FromContext
    from nerve.core.workflow.events import WorkflowEvent, WorkflowEventType
    from nerve.core.workflow.run import GateInfo, WorkflowRun, WorkflowRunInfo
    from nerve.core.workflow.workflow import Workflow as FromWorkflow
    from nerve.core.workflow.workflow import WorkflowInfo, WorkflowState

    named = [
        FromContext, FromWorkflow, GateInfo, WorkflowEvent, WorkflowEventType, WorkflowInfo, WorkflowRun,
        WorkflowRunInfo, WorkflowState,
    ]  # fmt: skip
    assert {kind.__name__ for kind in named} <= set(workflow.__all__)
    assert all(getattr(workflow, kind.__name__) is kind for kind in named)


@pytest.mark.requirement("S0-67")
def test_every_public_name_has_a_docstring():
    import nerve

    assert len(nerve.__all__) <= 20
    for name in nerve.__all__:
        assert getattr(nerve, name).__doc__, name


async def test_a_leaf_that_is_started_by_its_name_is_a_step_like_any_other():
    session, tries = Session(), []

    async def shaky(context):
        tries.append(context.path)
        if len(tries) == 1:
            raise OSError("not yet")
        return context.input

    FunctionNode("shaky", session, shaky, retry=Retry(attempts=2, delay=0))
    run = await session.start("shaky", "tea")
    assert await run.wait() == "tea"
    assert tries == ["/shaky", "/shaky"]
    told = [event.event_type for event in run.events]
    assert told == [
        "workflow_started",
        "node_started",
        "node_retrying",
        "node_completed",
        "workflow_completed",
    ]


async def test_an_agent_can_be_started_by_its_name():
    session = Session()
    AgentNode("dev", session, ScriptedProvider(["done"]))
    assert await (await session.start("dev", "Do it")).wait() == "done"


def whole(session, work, **policy):
    """Return a graph of one step that is started as a workflow."""
    graph = Graph("whole", session, **policy)
    graph.add_step(FunctionNode("work", session, work))
    session.register_workflow(graph)


async def test_a_graph_that_is_the_whole_run_is_retried_by_its_policy(session):
    tries = []

    async def work(context):
        tries.append(context.path)
        return {"success": len(tries) > 2, "output": len(tries), "error": "not yet"}

    whole(session, work, retry=Retry(attempts=3, delay=0))
    run = await session.start("whole")
    assert await run.wait() == 3
    assert tries == ["/work", "/work[2]", "/work[3]"]


async def test_a_graph_that_is_the_whole_run_has_its_timeout(session):
    async def work(context):
        await asyncio.Event().wait()

    whole(session, work, timeout=0.02)
    run = await session.start("whole")
    with pytest.raises(WorkflowFailed, match=r"timed out after 0\.02 s"):
        await run.wait()


@pytest.mark.parametrize("instead", ["skip", "fallback"])
async def test_a_graph_that_is_the_whole_run_uses_its_fallback(session, instead):
    def work(context):
        raise OSError("no luck")

    on_error = FunctionNode("spare", session, lambda context: "spared") if instead == "fallback" else instead
    whole(session, work, on_error=on_error)
    run = await session.start("whole")
    assert await run.wait() == ("spared" if instead == "fallback" else None)


def test_a_graph_that_is_the_whole_run_cannot_have_an_idle_timeout(session):
    with pytest.raises(ValueError, match="'whole' is the whole run, which cannot have an idle_timeout; set"):
        whole(session, nothing, idle_timeout=1)


async def test_cyclic_workflows_are_rejected_without_a_run_too(session):
    @session.workflow
    async def ping(ctx):
        return await ctx.run_workflow("pong")

    @session.workflow
    async def pong(ctx):
        return await ctx.run_workflow("ping")

    graph = Graph("graph", session)
    session.register_workflow(graph)
    graph.add_step(session.workflows["graph"], "again")
    for given in (ExecutionContext(session), "an input"):
        with pytest.raises(WorkflowFailed, match="in a cycle: ping -> pong -> ping"):
            await session.workflows["ping"].execute(given)
        with pytest.raises(WorkflowFailed, match="in a cycle: graph -> graph"):
            await session.workflows["graph"].execute(given)


async def test_the_depth_limit_applies_without_a_run_too(session):
    for number in range(19):

        @session.workflow(id=f"w{number}")
        async def nested(ctx, number=number):
            return await ctx.run_workflow(f"w{number + 1}") if number < 18 else "deep"

    with pytest.raises(WorkflowFailed, match="Workflow nesting exceeds depth=16"):
        await session.workflows["w0"].execute(ExecutionContext(session))
    assert await session.workflows["w2"].execute() == "deep"


async def test_a_graph_executed_without_a_run_gets_its_input(session):
    counted(session, "work", lambda given: given + 1)
    session.register_workflow(Graph("graph", session).add_step_ref("work", "work"))
    assert await session.workflows["graph"].execute(1) == 2
