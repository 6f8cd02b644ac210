"""Values that would not be read back unchanged fail with a message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import at_gate, within
from nerve import ExecutionContext, Session, WorkflowContext, WorkflowRun
from nerve.core.json_codec import MAX_VALUE_BYTES
from nerve.core.nodes import Graph, MockNode
from nerve.errors import NotJson, WorkflowFailed
from nerve.testing import ScriptedProvider

HALF = "a\ud800b"
TWICE = {1: "a", "1": "b"}
LARGE = "é" * (MAX_VALUE_BYTES // 2)
misfits = pytest.mark.parametrize(
    ("value", "said"),
    [
        (HALF, "a string with an unpaired surrogate at {}"),
        (TWICE, "an object with two keys that both become '1' at {}"),
        (LARGE, "a value of type str at {} has 66,060,290 bytes"),
    ],
    ids=["half", "twice", "large"],
)


@pytest.fixture
async def session(file: Path) -> Any:
    async with Session("test", file) as opened:
        yield opened


async def failed(run: WorkflowRun) -> BaseException:
    with pytest.raises((NotJson, WorkflowFailed)) as caught:
        await within(run.wait())
    assert run.state.value == "failed"
    return caught.value


@misfits
async def test_a_step_that_returns_an_invalid_value_fails(session: Session, value: Any, said: str) -> None:
    MockNode("n", session, [lambda _: {"output": {"x": value}}])

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.run("n")

    result = await within((await session.start("w")).wait())
    assert (result["success"], result["error_type"]) == (False, "NotJson")
    assert said.format("output.x") in result["error"]


@pytest.mark.local("looks at the event loop")
async def test_a_step_that_returns_an_unpaired_surrogate_reports_its_position(session: Session) -> None:
    session.register_workflow(Graph("g", session).add_step(MockNode("n", session, [HALF])))
    run = await session.start("g")
    with pytest.raises(WorkflowFailed, match="a string with an unpaired surrogate at output"):
        await within(run.wait())


@misfits
async def test_a_step_with_an_invalid_input_fails(session: Session, value: Any, said: str) -> None:
    node = MockNode("n", session)

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.run("n", [value])

    result = await within((await session.start("w")).wait())
    assert said.format("[0]") in result["error"]
    assert node.calls == []


@misfits
async def test_a_workflow_that_returns_an_invalid_value_fails(
    session: Session, value: Any, said: str
) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return {"x": value}

    assert said.format("x") in str(await failed(await session.start("w")))


@misfits
async def test_a_workflow_that_emits_an_invalid_value_fails(session: Session, value: Any, said: str) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        ctx.emit("told", {"x": value})

    assert said.format("x") in str(await failed(await session.start("w")))


@misfits
async def test_a_step_that_emits_an_invalid_value_fails(session: Session, value: Any, said: str) -> None:
    @session.node
    async def n(context: ExecutionContext) -> None:
        context.emit("told", {"x": value})

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.run("n")

    result = await within((await session.start("w")).wait())
    assert said.format("x") in result["error"]


@misfits
async def test_a_run_does_not_start_with_an_invalid_value(session: Session, value: Any, said: str) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return ctx.input

    with pytest.raises(NotJson) as caught:
        await session.start("w", value)
    assert said.format("input") in str(caught.value)
    with pytest.raises(NotJson):
        await session.start("w", 1, {"x": value})
    assert session.list_workflow_runs() == []


@misfits
async def test_a_gate_rejects_an_invalid_answer_and_stays_open(
    session: Session, value: Any, said: str
) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Well?", form={})

    run = await session.start("w")
    await at_gate(run)
    with pytest.raises(NotJson):
        await run.answer(value)
    half_as_large = value[: len(value) // 2 + 1] if value is LARGE else value
    with pytest.raises(NotJson):  # an answer is recorded under two names
        await run.answer(half_as_large)
    await run.answer("yes")
    assert await within(run.wait()) == "yes"


@pytest.mark.parametrize("prompt", [HALF, LARGE], ids=["half", "large"])
async def test_an_invalid_prompt_fails_the_run(session: Session, prompt: str) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.gate(prompt)

    assert "at prompt" in str(await failed(await session.start("w")))


@misfits
async def test_a_signal_with_an_invalid_value_is_rejected(session: Session, value: Any, said: str) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.wait_signal("ready")

    run = await session.start("w")
    for send in (lambda: session.signal("ready", None, value), lambda: run.signal("ready", value)):
        with pytest.raises(NotJson):
            await send()
    await session.signal("ready", None, "fine")
    assert await within(run.wait()) == "fine"


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.emit(HALF),
        lambda ctx: ctx.wait_signal(HALF),
        lambda ctx: ctx.wait_signal("ready", key=HALF),
    ],
)
async def test_a_name_with_an_unpaired_surrogate_is_rejected_at_once(
    session: Session, use: Callable[[WorkflowContext], Any]
) -> None:
    @session.workflow
    async def w(ctx: WorkflowContext) -> str:
        with pytest.raises(ValueError, match=r"name 'a\\ud800b' of .* contains an unpaired surrogate"):
            await use(ctx)
        return "refused"

    assert await within((await session.start("w")).wait()) == "refused"
    for about in ("label", "key", "branch", "conversation"):
        with pytest.raises(ValueError, match="an unpaired surrogate"):
            await session.start("w", **{about: HALF})
    with pytest.raises(ValueError, match="an unpaired surrogate"):
        Graph("g", session).add_step(MockNode("n", session), HALF)
    assert session.get_workflow_run(HALF) is None


async def test_an_error_is_recorded_whatever_its_text(session: Session) -> None:
    @session.node
    def n(context: ExecutionContext) -> None:
        raise ValueError(context.input * "\udce9" + "!" if context.input < 2 else "é" * context.input)

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        if (found := await ctx.run("n", ctx.input))["success"]:
            return None
        raise RuntimeError(found["error"] + HALF)

    for given, told in ((1, "?!a?b"), (2_000_000, "é" * 1_000_000 + "…")):
        run = await session.start("w", given)
        with pytest.raises((RuntimeError, WorkflowFailed)):
            await within(run.wait())
        assert run.state.value == "failed"
        assert str(run.to_info().error).startswith(told)


async def test_an_agent_whose_output_has_an_unpaired_surrogate_has_answered(file: Path) -> None:
    agent = ScriptedProvider([[{"tool": "Read", "input": {"path": HALF}}, f"see {HALF}"]])
    async with Session("test", file, providers={"claude": agent}) as session:
        session.load("{name: w, description: Ask., nodes: [{id: a, prompt: Well?}]}", "yaml")
        run = await session.start("w")
        assert await within(run.wait()) == "see a?b"
        (call,) = (event.data for event in run.events if event.event_type == "tool_call")
        assert call["input"] == {"path": "a?b"}
