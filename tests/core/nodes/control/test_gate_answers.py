"""Validation of the answers of a gate, and the preview of its input."""

from typing import Any

import pytest

from core.nodes.support import run_node, until
from nerve import Graph, MockNode, Session, WorkflowContext, WorkflowRun
from nerve.core.nodes.control import GateNode


async def asking(session: Session, gate: GateNode) -> WorkflowRun:
    session.register_workflow(gate)
    run = await session.start(str(gate.id), "what to judge")
    await until(lambda: run.pending_gate)
    return run


@pytest.mark.requirement("S0-25")
@pytest.mark.parametrize("answer", [5, None, True, ["yes"], {"a": 1}], ids=repr)
async def test_a_gate_without_a_form_accepts_only_strings(session: Session, answer: Any) -> None:
    @session.workflow
    async def review(ctx: WorkflowContext) -> str:
        decision: str = await ctx.gate("Accept?")
        return decision.lower()

    run = await session.start("review")
    await until(lambda: run.pending_gate)
    with pytest.raises(ValueError, match="Invalid answer: a gate without a form needs a string, got "):
        run.answer_gate(answer)
    run.answer_gate("YES")
    assert await run.wait() == "yes"


async def test_a_gate_with_a_form_accepts_values_that_match_it(session: Session) -> None:
    run = await asking(session, GateNode("n", session, "How many?", form={"type": "integer"}))
    run.answer_gate(5)
    assert await run.wait() == 5


@pytest.mark.requirement("S1-23")
@pytest.mark.requirement("C-12")
async def test_a_gate_asks_again_with_the_reason_when_its_validator_raises(session: Session) -> None:
    run = await asking(session, GateNode("n", session, "How many?", validator=lambda a: int(a) > 3))
    run.answer_gate("abc")
    await until(lambda: run.pending_gate)
    assert run.pending_gate is not None
    assert run.pending_gate.note == ("'abc' was not accepted: invalid literal for int() with base 10: 'abc'")
    run.answer_gate("2")
    await until(lambda: run.pending_gate)
    assert run.pending_gate.note == "'2' was not accepted"
    run.answer_gate("7")
    assert await run.wait() == "7"


async def test_a_validator_that_always_raises_fails_the_gate_after_its_attempts(session: Session) -> None:
    gate = GateNode("n", session, "How many?", validator=lambda a: int(a) > 3, attempts=2, auto_answer="x")
    run = await run_node(session, gate)
    with pytest.raises(Exception, match="Invalid response: validator of 'n' raised on str: invalid literal"):
        await run.wait()


@pytest.mark.requirement("S1-23")
async def test_an_open_gate_has_a_preview_of_its_input(session: Session) -> None:
    graph = Graph("g", session).chain(
        MockNode("write", session, ["the summary"]), GateNode("ok", session, "Approve?")
    )
    session.register_workflow(graph)
    run = await session.start("g")
    await until(lambda: run.pending_gate)
    assert run.pending_gate is not None
    assert run.pending_gate.input_preview == "the summary"
    assert run.to_info().pending_gates[0]["input_preview"] == "the summary"
    run.run_state.forget_gates()
    assert run.pending_gate.input_preview == "the summary"
    run.answer_gate("yes")
