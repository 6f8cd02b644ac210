"""Documented calls and names are accepted as documented."""

import asyncio
from datetime import UTC, date, datetime
from typing import Any

import pytest

import nerve.core.nodes.control
from nerve import (
    ExecutionContext,
    FunctionNode,
    Graph,
    MockNode,
    Session,
    Workflow,
    WorkflowContext,
    WorkflowRun,
)
from nerve.core.workflow import WorkflowEvent, WorkflowState


async def finished(session: Session, fn: Any) -> WorkflowRun:
    run = WorkflowRun(Workflow("flow", session, fn))
    await run.start()
    await asyncio.wait([asyncio.ensure_future(run.wait())], timeout=10)
    return run


@pytest.mark.requirement("S1-12")
async def test_execute_accepts_input_and_params_by_name(session: Session) -> None:
    async def flow(ctx: WorkflowContext) -> Any:
        return [ctx.input, ctx.params]

    workflow = Workflow("flow", session, flow)
    assert await workflow.execute(input="x", params={"a": 1}) == ["x", {"a": 1}]
    assert await workflow.execute("x", {"a": 1}) == ["x", {"a": 1}]
    assert (await workflow.execute(ExecutionContext(session, "x")))["output"] == ["x", {}]
    with pytest.raises(TypeError, match="'flow' got two inputs; pass only one"):
        await workflow.execute("x", input="y")


@pytest.mark.requirement("S1-28")
async def test_a_graph_assigned_to_workflows_becomes_a_workflow(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("m", session, ["x"]), "a")
    session.workflows[graph.id] = graph
    run = WorkflowRun(workflow=session.workflows["g"], input=1)
    await run.start()
    assert await run.wait() == "x"
    assert session.list_workflows() == ["g"]
    with pytest.raises(ValueError, match="Workflow 'other' is the node 'g'; register it under its own id"):
        session.workflows["other"] = graph


@pytest.mark.requirement("C-26")
async def test_a_run_accepts_session_event_bus_and_event_callback(session: Session) -> None:
    events: list[WorkflowEvent] = []
    graph = Graph("g", session).add_step(MockNode("m", session, ["x"]), "a")
    run = WorkflowRun(
        run_id="g-12345678", workflow=graph, session=session, input=1, params={}, event_bus=events.append
    )
    await run.start()
    assert (run.run_id, await run.wait()) == ("g-12345678", "x")
    assert events[0].event_type == "workflow_started"
    callback = WorkflowRun(session.workflows["g"], input=1, event_callback=events.append)
    events.clear()
    await callback.start()
    await callback.wait()
    assert events[-1].event_type == "workflow_completed"
    with pytest.raises(ValueError, match="belongs to another session"):
        WorkflowRun(session.workflows["g"], session=Session())
    with pytest.raises(ValueError, match="pass only one of them"):
        WorkflowRun(session.workflows["g"], event_sink=events.append, event_bus=events.append)


@pytest.mark.requirement("S0-54")
async def test_runs_are_listed_by_the_name_of_a_state(session: Session) -> None:
    async def fail(ctx: WorkflowContext) -> None:
        raise ValueError("no")

    run = await finished(session, fail)
    assert [info.run_id for info in session.list_workflow_runs(state="failed")] == [run.run_id]
    assert session.list_workflow_runs(state=WorkflowState.COMPLETED) == []
    with pytest.raises(ValueError, match=r"got 'fialed' of type str.*failed"):
        session.list_workflow_runs(state="fialed")


@pytest.mark.requirement("S0-32")
@pytest.mark.requirement("C-09")
@pytest.mark.parametrize("name", ["step_completed", "workflow_failed", "gate_waiting", "node_started"])
async def test_a_reserved_event_name_can_be_emitted_and_is_distinguishable(
    session: Session, name: str
) -> None:
    MockNode("m", session, ["x"])

    async def flow(ctx: WorkflowContext) -> Any:
        ctx.emit(name, {"step_id": "mine", "gate_id": "1", "prompt": "?"})
        return (await ctx.run("m"))["output"]

    run = await finished(session, flow)
    assert (await run.wait(), run.state) == ("x", WorkflowState.COMPLETED)
    assert [event.data["step_id"] for event in run.events if event.event_type == f"user:{name}"] == ["mine"]
    assert list(run.view.nodes) == ["/m"]
    assert run.pending_gates == []


async def test_an_emitted_reserved_name_is_replayed_unchanged(session: Session) -> None:
    async def flow(ctx: WorkflowContext) -> Any:
        ctx.emit("gate_waiting", {"n": 1})
        answer = await ctx.gate("Go on?")
        ctx.emit("gate_waiting", {"n": 2})
        return answer

    session.workflow(flow)
    run = await session.start("flow")
    await run.next_gate()
    await run.pause()
    await run.resume()
    run.answer_gate("yes")
    assert await run.wait() == "yes"
    assert [event.data for event in run.events if event.event_type == "user:gate_waiting"] == [
        {"n": 1},
        {"n": 2},
    ]


@pytest.mark.requirement("S0-32")
async def test_times_in_event_data_become_strings(session: Session) -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)

    async def flow(ctx: WorkflowContext) -> None:
        ctx.emit("seen", {"at": at, "days": [date(2025, 1, 2)]})

    run = await finished(session, flow)
    [seen] = [event.data for event in run.events if event.event_type == "seen"]
    assert seen == {"at": "2025-01-02T03:04:05+00:00", "days": ["2025-01-02"]}


async def test_an_event_without_a_name_is_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="The name of an event must not be empty"):
        ExecutionContext(session).emit("")


@pytest.mark.requirement("S0-17")
async def test_a_call_accepts_a_run_id_and_an_event_sink(session: Session) -> None:
    seen: list[WorkflowEvent] = []

    def leaf(context: ExecutionContext) -> str:
        context.emit("half", {"percent": 50})
        return context.run_id

    FunctionNode("leaf", session, leaf)

    async def flow(ctx: WorkflowContext) -> Any:
        return (await ctx.run("leaf", 1, run_id="mine", event_sink=seen.append))["output"]

    run = await finished(session, flow)
    assert await run.wait() == "mine"
    assert [(event.event_type, event.run_id, event.data) for event in seen] == [
        ("half", "mine", {"percent": 50})
    ]
    assert [event.data for event in run.events if event.event_type == "half"] == [{"percent": 50}]


@pytest.mark.requirement("S0-52")
def test_validate_unique_id_accepts_both_argument_names(session: Session) -> None:
    MockNode("n", session)
    for check in (
        lambda: session.validate_unique_id(id="n", entity_type="workflow"),
        lambda: session.validate_unique_id(entity_id="n", entity_type="workflow"),
        lambda: session.validate_unique_id("n", "workflow"),
    ):
        with pytest.raises(ValueError, match="Workflow ID 'n' conflicts with existing node"):
            check()


@pytest.mark.requirement("S0-09")
def test_a_workflow_without_an_id_is_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="The name of a workflow must be a string, got None"):
        Workflow(None, session, print)  # type: ignore[arg-type]
    assert session.workflows == {}


@pytest.mark.requirement("S1-46")
@pytest.mark.parametrize(
    "name",
    ["WhileNode", "LoopNode", "BranchNode", "SwitchNode", "MapNode", "ReduceNode", "GateNode"],
)
def test_control_nodes_are_exported(name: str) -> None:

    assert name in nerve.core.nodes.__all__
    assert getattr(nerve.core.nodes, name) is getattr(nerve.core.nodes.control, name)


@pytest.mark.requirement("S1-46")
@pytest.mark.parametrize("name", ["WhileNode", "LoopNode", "BranchNode", "GateNode", "MapNode"])
def test_the_common_control_nodes_are_exported_by_nerve_itself(name: str) -> None:
    assert name in nerve.__all__
    assert getattr(nerve, name) is getattr(nerve.core.nodes, name)


def test_a_function_node_is_found_beside_the_node() -> None:
    from nerve.core.nodes import base

    assert base.FunctionNode is nerve.core.nodes.FunctionNode
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        _ = base.Other
