"""Event types, aliases and event data of runs."""

from datetime import UTC, datetime

import pytest

from core.workflow.support import at_gate, counted, data_of, types
from nerve import ExecutionContext, FunctionNode, Graph
from nerve.core.events import EVENT_ALIASES
from nerve.core.nodes.control import GateNode
from nerve.core.workflow import WorkflowEvent, WorkflowEventType

AT = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.requirement("S0-49")
@pytest.mark.requirement("S1-32")
@pytest.mark.requirement("C-26")
def test_an_event_accepts_both_documented_signatures_and_is_json():
    one = WorkflowEvent("r", "w", "progress", {"percent": 50}, AT)
    other = WorkflowEvent(
        workflow_id="w", run_id="r", event_type="progress", timestamp=AT, data={"percent": 50}
    )
    assert one == other
    told = one.to_dict()
    assert told["timestamp"] == "2025-01-01T00:00:00+00:00"
    assert (told["run_id"], told["workflow_id"], told["event_type"]) == ("r", "w", "progress")
    assert told["data"] == {"percent": 50}


@pytest.mark.requirement("S1-32")
def test_the_type_of_an_event_can_be_a_member_and_is_written_as_its_value():
    event = WorkflowEvent("r", "w", WorkflowEventType.STARTED, {}, AT)
    assert event.event_type == "workflow_started"
    assert event.to_dict()["event_type"] == "workflow_started"


@pytest.mark.requirement("S0-50")
@pytest.mark.requirement("D0-1")
@pytest.mark.requirement("D1-6")
@pytest.mark.parametrize(
    "name",
    [
        "workflow_started", "workflow_completed", "workflow_failed", "workflow_cancelled", "node_started",
        "node_completed", "node_error", "node_timeout", "gate_waiting", "gate_answered", "gate_timeout",
    ],
)  # fmt: skip
def test_the_event_names_of_python_workflows_are_members(name):
    assert WorkflowEventType(name) == name
    assert str(WorkflowEventType(name)) == name


@pytest.mark.requirement("S1-31")
@pytest.mark.requirement("C-02")
@pytest.mark.requirement("C-26")
@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("STARTED", "workflow_started"),
        ("COMPLETED", "workflow_completed"),
        ("FAILED", "workflow_failed"),
        ("PAUSED", "workflow_paused"),
        ("RESUMED", "workflow_resumed"),
        ("CANCELLED", "workflow_cancelled"),
        ("STEP_STARTED", "step_started"),
        ("STEP_COMPLETED", "step_completed"),
        ("STEP_FAILED", "step_failed"),
        ("LOOP_ITERATION", "loop_iteration"),
        ("BRANCH_TAKEN", "branch_taken"),
        ("MAP_ITEM_START", "map_item_start"),
        ("MAP_ITEM_COMPLETE", "map_item_complete"),
        ("GATE_WAITING", "gate_waiting"),
        ("GATE_RESOLVED", "gate_answered"),
        ("OUTPUT_CHUNK", "output_chunk"),
        ("LOG", "log"),
    ],
)
def test_the_members_of_control_nodes_have_the_canonical_values(member, value):
    assert WorkflowEventType[member] == value
    assert isinstance(WorkflowEventType[member], str)


@pytest.mark.requirement("C-02")
@pytest.mark.requirement("C-26")
@pytest.mark.parametrize(("short", "name"), EVENT_ALIASES.items())
def test_short_names_resolve(short, name):
    assert WorkflowEventType(short) == name
    assert WorkflowEvent("r", "w", name, {}, AT).is_a(short)


@pytest.mark.requirement("C-09")
def test_an_unknown_name_is_not_a_member_but_is_accepted_as_an_event():
    with pytest.raises(ValueError, match="'whatever' is not a valid WorkflowEventType"):
        WorkflowEventType("whatever")
    assert WorkflowEvent("r", "w", "whatever", {}, AT).is_a("whatever")


@pytest.mark.requirement("C-01")
async def test_an_answer_is_one_record_with_both_documented_names_and_fields(session):
    async def body(ctx):
        return await ctx.gate("Continue?")

    session.workflow(body)
    run = await session.start("body")
    await at_gate(run)
    await run.answer("yes")
    await run.wait()
    answered = [event for event in run.events if event.is_a("gate_resolved")]
    assert [event.event_type for event in answered] == ["gate_answered"]
    assert answered[0].aliases == ("gate_resolved",)
    assert (answered[0].data["answer"], answered[0].data["response"]) == ("yes", "yes")


@pytest.mark.requirement("S0-28")
async def test_a_gate_emits_its_question_and_its_answer(session):
    async def body(ctx):
        return await ctx.gate("Which?", choices=["a", "b"])

    session.workflow(body)
    run = await session.start("body")
    await at_gate(run)
    await run.answer("b", by="ada")
    await run.wait()
    waiting, answered = data_of(run, "gate_waiting")[0], data_of(run, "gate_answered")[0]
    assert (waiting["prompt"], waiting["choices"]) == ("Which?", ["a", "b"])
    assert waiting["gate_id"] == answered["gate_id"]
    assert (answered["answer"], answered["by"]) == ("b", "ada")


@pytest.mark.requirement("S1-33")
async def test_the_start_of_a_graph_lists_its_steps_and_their_ends_have_durations(session):
    graph = Graph("pipeline", session).chain(
        FunctionNode("one", session, lambda context: 1), FunctionNode("two", session, lambda context: 2)
    )
    session.register_workflow(graph)
    run = await session.start("pipeline")
    await run.wait()
    assert run.events[0].data["steps"] == ["one", "two"]
    assert [data["step_id"] for data in data_of(run, "step_completed")] == ["one", "two"]
    assert all(data["duration_ms"] >= 0 for data in data_of(run, "step_completed"))
    assert data_of(run, "workflow_completed")[0]["duration_s"] >= 0


@pytest.mark.requirement("C-02")
async def test_a_failed_step_of_a_graph_is_named_and_fails_the_run(session):
    session.register_workflow(
        Graph("pipeline", session).add_step(FunctionNode("one", session, lambda context: 1 / 0))
    )
    run = await session.start("pipeline")
    with pytest.raises(Exception, match="step 'one' failed: division by zero"):
        await run.wait()
    assert types(run)[-2:] == ["step_failed", "workflow_failed"]
    failed = data_of(run, "step_failed")[0]
    assert (failed["step_id"], failed["error_type"]) == ("one", "ZeroDivisionError")


@pytest.mark.requirement("S1-29")
async def test_an_execution_context_without_a_run_emits_to_its_sink():
    heard = []
    context = ExecutionContext(None, "in", heard.append, "w", "r")
    context.emit("progress", {"percent": 50})
    other = context.with_input("out")
    other.emit("progress")
    assert [(e.run_id, e.workflow_id, e.data) for e in heard] == [("r", "w", {"percent": 50}), ("r", "w", {})]
    assert (context.input, other.input) == ("in", "out")


@pytest.mark.requirement("C-24")
async def test_the_events_of_a_gate_node_have_its_node_id(session):
    session.register_workflow(Graph("g", session).add_step(GateNode("approval", session, "Merge?")))
    run = await session.start("g")
    await at_gate(run)
    assert data_of(run, "gate_waiting")[0]["node_id"] == "approval"
    assert run.pending_gate.node_id == "approval"
    await run.answer("yes", "approval")
    assert await run.wait() == "yes"


async def test_every_event_of_a_run_is_json(session):
    import json

    counted(session, "echo")

    async def body(ctx):
        ctx.emit("progress", {"percent": 50})
        await ctx.run("echo", {"deep": [1, None]})

    session.workflow(body)
    run = await session.start("body")
    await run.wait()
    assert json.loads(json.dumps([e.to_dict() for e in run.events]))[0]["event_type"] == "workflow_started"
