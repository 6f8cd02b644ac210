"""What agents on workers need of their run: budgets, gates and messages, through the workflow of the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.temporal.temporal_runs import TemporalRuns, open_runs
from nerve import FunctionNode, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import GateWait
from nerve.core.steering import SteeringQueue
from nerve.testing import ScriptedProvider

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
USAGE = {"usage": {"output_tokens": 10}}


def make_session() -> Session:
    answers = iter(
        [[{"text": "not JSON"}, USAGE], [{"text": '{"n": 7}'}, USAGE], [{"text": '{"n": 8}'}, USAGE]]
    )
    session = Session("team", providers={"scripted": ScriptedProvider(lambda call: next(answers))})
    AgentNode("writer", session, "scripted", output_schema=SCHEMA, thread="fresh")
    AgentNode("careful", session, "scripted", output_schema=SCHEMA, limits={"turns": 1})

    @session.workflow(limits={"turns": 1})
    async def limited(ctx: WorkflowContext) -> Any:
        return (await ctx.run("writer", "Go")).output

    @session.workflow
    async def limited_step(ctx: WorkflowContext) -> Any:
        return (await ctx.run("careful", "Go")).output

    FunctionNode("ask", session, ask)
    ListeningNode("listen", session, listen)

    @session.workflow
    async def steps(ctx: WorkflowContext) -> Any:
        return (await ctx.run(ctx.input)).output

    @session.workflow
    async def unlimited(ctx: WorkflowContext) -> Any:
        return (await ctx.run("writer", "Go")).output

    return session


class ListeningNode(FunctionNode):
    """A function that accepts messages of users."""

    asks = True


async def ask(context: ExecutionContext) -> Any:
    return await context.leaf_runtime.ask(GateWait(f"{context.path}/question", "Go on?", ["yes", "no"]))


async def listen(context: ExecutionContext) -> Any:
    messages = context.leaf_runtime.steering = SteeringQueue()
    context.emit("listening", {})
    return await messages.get()


@pytest.fixture
async def runs(temporal_url: str) -> AsyncIterator[TemporalRuns]:
    async with open_runs(temporal_url, make_session(), leaf_session=make_session()) as runs:
        yield runs


@pytest.mark.parametrize(
    ("workflow", "limits"), [("limited", {"turns": 5}), ("limited_step", {"/careful": {"turns": 5}})]
)
async def test_a_turn_on_a_worker_waits_for_the_budget_of_its_run_or_step(
    runs: TemporalRuns, workflow: str, limits: dict[str, Any]
) -> None:
    run = await runs.start(workflow)
    [hold] = await run.until(lambda: [row for row in run.rows if row.type == "workflow_held"])
    assert json.loads(hold.data)["reason"] == "budget"
    assert run.types.count("usage") == 1
    await run.command("resume", limits=limits)
    assert await run.wait() == {"n": 7}
    assert run.types.count("usage") == 2


async def test_without_a_budget_no_turn_is_a_command_of_the_workflow(runs: TemporalRuns) -> None:
    run = await runs.start("unlimited")
    assert await run.wait() == {"n": 7}
    history = await run.handle.fetch_history()
    updates = "workflow_execution_update_accepted_event_attributes"
    assert not [event for event in history.events if event.HasField(updates)]


async def test_a_question_of_a_leaf_is_a_gate_of_its_run(runs: TemporalRuns) -> None:
    run = await runs.start("steps", "ask")
    wait = await run.next_wait("leaf_gate")
    assert wait.path == "/ask/question"
    await run.command("answer", value="yes", by="ada")
    assert await run.wait() == "yes"
    assert [kind for kind in run.types if "gate" in kind] == ["gate_waiting", "gate_answered"]


async def test_the_question_of_a_stopped_leaf_is_closed(runs: TemporalRuns) -> None:
    run = await runs.start("steps", "ask")
    await run.next_wait("leaf_gate")
    await run.command("stop", reason="enough")
    with pytest.raises(asyncio.CancelledError):
        await run.wait()
    assert run.store.waits_of_run(run.run_id) == []


async def test_a_message_of_a_user_reaches_the_agent_on_its_worker(runs: TemporalRuns) -> None:
    run = await runs.start("steps", "listen")
    await run.until(lambda: "listening" in run.types)
    assert await run.command("steer", text="be brief", by="ada") == "/listen"
    assert await run.wait() == "be brief"
    assert run.types.count("steered") == 1
