"""Real runs for the models of the user interface."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nerve import FunctionNode, Retry, Session
from nerve.agents import AgentNode
from nerve.agents.provider import Reasoning, ToolCall, ToolUpdate
from nerve.api import Api
from nerve.client import Client
from nerve.testing import ScriptedProvider

USAGE = {"input_tokens": 5, "output_tokens": 7, "cost": 0.25, "model": "opus"}


def answer_prompt(call: Any) -> list[Any]:
    return [
        Reasoning("I look first."),
        ToolCall("Bash", {"command": "ls"}, "t1"),
        ToolUpdate("t1", "completed", "flow.py"),
        {"text": f"# Done\n\n{call.prompt}"},
        {"usage": USAGE},
    ]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Return a client of a session with the workflow `ship`."""
    failures = 0
    async with Session(providers={"claude": ScriptedProvider(answer_prompt, "claude")}) as session:

        def flaky(context: Any) -> Any:
            nonlocal failures
            failures += 1
            logging.getLogger("ship").warning("try %d", failures)
            if failures == 1:
                raise LookupError("offline")
            return [{"name": "a", "size": 1}, {"name": "b", "size": None}]

        AgentNode("claude", session, "claude", thread="fresh")
        FunctionNode("flaky", session, flaky)

        @session.workflow
        async def check(ctx: Any) -> Any:
            return (await ctx.run("echo", ctx.input)).output

        @session.node
        def echo(context: Any) -> Any:
            return context.input

        @session.workflow
        async def ship(ctx: Any) -> Any:
            plan = await ctx.run("claude", {"prompt": f"Plan {ctx.input}"})
            await ctx.run("flaky", {"deep": {"x": 1}}, retry=Retry(attempts=2, delay=0))
            await ctx.run_workflow("check", ctx.input)
            await ctx.gate("Ship it?", choices=["yes", "no"])
            return plan.output

        yield Client(Api(session))


async def ship(client: Client, input: Any = "tea") -> str:
    """Run `ship` to its end and return the id of the run."""
    run = await client.start(workflow="ship", input=input, wait=True)
    assert run.gates, run
    await client.answer(run=run.run_id, answer="yes")
    async for _ in client.watch(run.run_id):
        pass
    return run.run_id
