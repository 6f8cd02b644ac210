"""GateNode, with and without a run."""

import asyncio
from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, run_node, until
from nerve import ExecutionContext, Session, WorkflowEvent, WorkflowRun
from nerve.core.nodes import Graph, MockNode
from nerve.core.nodes.control import GateNode, ParallelNode
from nerve.errors import WorkflowFailed


async def asked(session: Session, gate: GateNode, input: Any = "data") -> WorkflowRun:
    """Return a run that waits at the gate."""
    session.register_workflow(Graph("flow", session).add_step(gate, "approve"))
    run = await session.start("flow", input)
    await until(lambda: run.pending_gates)
    return run


@pytest.mark.requirement("S1-45")
@pytest.mark.requirement("S1-23")
async def test_a_gate_waits_for_input(session: Session) -> None:
    gate = GateNode(id="approval", session=session, prompt="Approve?")
    events: list[WorkflowEvent] = []
    task = asyncio.create_task(execute_node(gate, "data", event_sink=events.append))
    await until(lambda: event_data(events, "gate_waiting"))
    gate.receive_input("yes")
    result = await task
    assert (result["success"], result["output"]) == (True, "yes")
    assert result["attributes"] == {"gate_input": "yes"}


@pytest.mark.requirement("S1-45")
@pytest.mark.requirement("S1-23")
@pytest.mark.requirement("C-11")
@pytest.mark.requirement("D1-6")
@pytest.mark.parametrize("seconds", [0, 0.001])
async def test_timeout(session: Session, seconds: float) -> None:
    gate = GateNode(id="approval", session=session, prompt="?", timeout=seconds)
    result, events = await execute_with_events(gate)
    assert (result["success"], result.get("output")) == (False, None)
    assert "timeout" in result["error"].lower()
    assert event_data(events, "gate_timeout")[0]["timeout"] == seconds


@pytest.mark.requirement("S1-07")
@pytest.mark.requirement("S1-23")
async def test_the_gate_of_the_user_story_is_answered_in_a_run(session: Session) -> None:
    gate = GateNode(
        id="merge_approval",
        session=session,
        prompt="Review the changes and type 'approve' to merge:",
        timeout=3600.0,
    )
    run = await asked(session, gate)
    run.answer_gate("approve")
    assert await run.wait() == "approve"


@pytest.mark.requirement("S1-23")
@pytest.mark.requirement("C-24")
async def test_the_events_of_a_run_have_the_question_and_the_answer_of_a_gate(session: Session) -> None:
    gate = GateNode("ok", session, lambda inp: f"Merge {inp}?", options=["yes", "no"])
    run = await asked(session, gate, "x" * 300)
    run.answer_gate("maybe", gate_id="ok")
    await run.wait()
    [waiting], [answered] = event_data(run.events, "gate_waiting"), event_data(run.events, "gate_answered")
    assert (waiting["prompt"], waiting["options"]) == (f"Merge {'x' * 300}?", ["yes", "no"])
    assert (waiting["node_id"], waiting["input_preview"]) == ("ok", "x" * 200)
    assert (answered["gate_id"], answered["response"]) == (waiting["gate_id"], "maybe")


@pytest.mark.requirement("C-24")
@pytest.mark.parametrize("answered", ["yes", None])
async def test_without_a_run_every_event_of_a_gate_has_its_ids(
    session: Session, answered: str | None
) -> None:
    _, events = await execute_with_events(GateNode("ok", session, "?", timeout=0, auto_answer=answered))
    ids = {(event.data["gate_id"], event.data["node_id"]) for event in events}
    assert (len(events), len(ids)) == (2, 1)


@pytest.mark.requirement("C-24")
async def test_the_same_gate_has_different_ids_in_two_runs(session: Session) -> None:
    first = await asked(session, GateNode("ok", session, "?"))
    second = await session.start("flow")
    await until(lambda: second.pending_gate)
    [one], [other] = first.pending_gates, second.pending_gates
    assert one.gate_id != other.gate_id
    assert len(one.gate_id) == 8


@pytest.mark.requirement("D1-5")
async def test_answering_one_run_leaves_the_other_run_of_the_graph_waiting(session: Session) -> None:
    first = await asked(session, GateNode("ok", session, "?"))
    second = await session.start("flow")
    await until(lambda: second.pending_gate)
    first.answer_gate("one")
    assert await first.wait() == "one"
    assert second.pending_gate
    second.answer_gate("two")
    assert await second.wait() == "two"


@pytest.mark.requirement("C-12")
async def test_choices_are_strict_and_a_wrong_answer_leaves_the_gate_open(session: Session) -> None:
    run = await asked(session, GateNode("ok", session, "?", choices=["yes", "no"]))
    with pytest.raises(ValueError, match="Invalid choice 'maybe'"):
        run.answer_gate("maybe")
    run.answer_gate("no")
    assert await run.wait() == "no"


@pytest.mark.requirement("C-12")
async def test_without_a_run_choices_are_strict_too(session: Session) -> None:
    gate = GateNode("ok", session, "?", choices=["yes", "no"])
    task = asyncio.create_task(execute_node(gate))
    await until(lambda: gate._receivers)
    with pytest.raises(ValueError, match=r"Invalid choice 'maybe'. Must be one of: \['yes', 'no'\]"):
        gate.receive_input("maybe")
    gate.receive_input("yes")
    assert (await task)["output"] == "yes"


@pytest.mark.requirement("C-12")
async def test_a_gate_asks_again_with_the_reason_after_a_rejected_answer(session: Session) -> None:
    run = await asked(session, GateNode("age", session, "How old?", validator=str.isdigit))
    run.answer_gate("old")
    await until(lambda: run.pending_gate)
    assert run.pending_gate
    assert run.pending_gate.note == "'old' was not accepted"
    run.answer_gate("42")
    assert await run.wait() == "42"


@pytest.mark.requirement("C-12")
@pytest.mark.requirement("S1-23")
async def test_a_gate_fails_with_the_last_answer_after_all_attempts(session: Session) -> None:
    gate = GateNode("age", session, "?", validator=str.isdigit, attempts=2, auto_answer="old")
    result, events = await execute_with_events(gate)
    assert (result["success"], result["error"]) == (False, "Invalid response")
    assert result.get("output") == "old"
    assert len(event_data(events, "gate_waiting")) == 2


@pytest.mark.requirement("C-11")
async def test_in_a_run_a_gate_that_times_out_is_a_failed_step(session: Session) -> None:
    gate = GateNode("ok", session, "?", timeout=0.001)
    run = await run_node(session, Graph("flow", session).add_step(gate, "approve"))
    with pytest.raises(WorkflowFailed, match="step 'approve' failed: Gate timeout"):
        await run.wait()
    assert len(event_data(run.events, "gate_timeout")) == 1


@pytest.mark.requirement("S1-24")
@pytest.mark.requirement("D1-12")
@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({}, "approve"),
        ({"options": ["ship", "hold"]}, "ship"),
        ({"choices": ["no", "approve"]}, "approve"),
        ({"auto_answer": "mine"}, "mine"),
    ],
)
async def test_a_context_that_approves_answers_gates_at_once(
    session: Session, options: dict[str, Any], answer: str
) -> None:
    gate = GateNode("ok", session, "?", **options)
    assert (await execute_node(gate, auto_approve=True))["output"] == answer


@pytest.mark.requirement("S1-24")
async def test_the_auto_approve_attribute_approves_one_gate(session: Session) -> None:
    graph = Graph("flow", session).add_step(GateNode("ok", session, "?"), "approve")
    graph._steps["approve"].node._auto_approve = True  # type: ignore[attr-defined]
    assert (await execute_node(graph))["output"] == "approve"


@pytest.mark.requirement("S1-24")
async def test_a_gate_with_an_automatic_answer_does_not_wait_in_a_run(session: Session) -> None:
    gate = GateNode("ok", session, "?", auto_answer="yes")
    session.register_workflow(Graph("flow", session).add_step(gate, "approve"))
    run = await session.start("flow")
    assert await run.wait() == "yes"
    assert event_data(run.events, "gate_answered")[0]["answer"] == "yes"


def test_an_automatic_answer_must_be_one_of_the_choices(session: Session) -> None:
    with pytest.raises(ValueError, match="Invalid choice 'maybe'"):
        GateNode("ok", session, "?", choices=["yes"], auto_answer="maybe")


async def test_input_for_a_gate_that_does_not_wait_is_rejected(session: Session) -> None:
    with pytest.raises(
        RuntimeError, match="Gate 'ok' is not waiting here; if a run executes it, answer the run"
    ):
        GateNode("ok", session, "?").receive_input("yes")


async def test_two_concurrent_gates_are_answered_by_node_id(session: Session) -> None:
    gates = ParallelNode("both", session, {n: GateNode(f"gate_{n}", session, f"{n}?") for n in ("a", "b")})
    session.register_workflow(gates)
    run = await session.start("both")
    await until(lambda: len(run.pending_gates) == 2)
    run.answer_gate("for b", gate_id="gate_b")
    run.answer_gate("for a", gate_id="gate_a")
    assert await run.wait() == {"a": "for a", "b": "for b"}


async def test_a_gate_without_an_input_has_an_empty_preview(session: Session) -> None:
    run = await asked(session, GateNode("ok", session, "Go?"), None)
    assert event_data(run.events, "gate_waiting")[0]["input_preview"] == ""
    await run.stop()


async def test_after_a_step_the_preview_shows_the_output_and_the_prompt_gets_the_result(
    session: Session,
) -> None:
    gate = GateNode("ok", session, lambda result: f"success: {result['success']}", auto_answer="yes")
    graph = Graph("flow", session).chain(MockNode("work", session, ["the work"]), gate)
    events: list[WorkflowEvent] = []
    await graph.execute(ExecutionContext(session, event_sink=events.append))
    [waiting] = event_data(events, "gate_waiting")
    assert (waiting["prompt"], waiting["input_preview"]) == ("success: True", "the work")


async def test_a_prompt_function_must_return_a_string(session: Session) -> None:
    with pytest.raises(ValueError, match="prompt of 'g' must be a string, got 5 of type int"):
        await execute_node(GateNode("g", session, lambda given: 5, auto_answer="yes"))


async def test_a_gate_that_cannot_be_answered_automatically_is_an_error(session: Session) -> None:
    gate = GateNode("g", session, "?", form={"type": "object", "required": ["a"]})
    with pytest.raises(ValueError, match="Gate 'g' cannot be answered automatically; set auto_answer"):
        await execute_node(gate, auto_approve=True)


async def test_a_gate_can_be_answered_from_another_thread(session: Session) -> None:
    gate = GateNode("g", session, "?")
    waiting = asyncio.ensure_future(execute_node(gate))
    await until(lambda: gate._receivers)
    await asyncio.get_running_loop().run_in_executor(None, gate.receive_input, "yes")
    assert (await asyncio.wait_for(waiting, 60)).output == "yes"


async def test_a_cancelled_gate_does_not_wait(session: Session) -> None:
    gate = GateNode("g", session, "?", timeout=0)
    assert (await execute_node(gate)).error == "Gate timeout"
    gate.timeout = None
    waiting = asyncio.ensure_future(execute_node(gate))
    await until(lambda: gate._receivers)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert gate._receivers == []
