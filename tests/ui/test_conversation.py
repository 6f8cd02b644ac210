"""The conversations of a run."""

from __future__ import annotations

from typing import Any

from nerve import Session
from nerve.agents import AgentNode
from nerve.api import Api
from nerve.client import Client
from nerve.testing import ScriptedProvider
from nerve.ui.conversation import Conversation
from nerve.ui.run_loader import read_run_events

from .conftest import ship


async def conversation_of(client: Client, run_id: str) -> Conversation:
    conversation = Conversation()
    async for prefix, event in read_run_events(client, run_id):
        conversation.apply_event(prefix, event)
    return conversation


async def test_a_conversation_has_prompt_reasoning_tools_and_text(client: Client) -> None:
    conversation = await conversation_of(client, await ship(client))
    [thread] = conversation.threads
    assert (thread.id, thread.provider, thread.model) == ("thread-1", "claude", "opus")
    [turn] = thread.turns
    assert (turn.path, turn.name, turn.is_running) == ("/claude", "claude", False)
    assert [(entry.kind, entry.text) for entry in turn.entries] == [
        ("prompt", "Plan tea"),
        ("reasoning", "I look first."),
        ("tool", "flow.py"),
        ("text", "# Done\n\nPlan tea"),
    ]


async def test_turns_of_one_thread_are_together_and_child_runs_are_included() -> None:
    provider = ScriptedProvider(lambda call: f"answer to {call.prompt}", "claude")
    async with Session(providers={"claude": provider}) as session:
        AgentNode("claude", session, "claude", thread="fresh")

        @session.workflow
        async def inner(ctx: Any) -> Any:
            return (await ctx.run("claude", {"prompt": "inside"})).output

        @session.workflow
        async def outer(ctx: Any) -> Any:
            first = await ctx.run("claude", {"prompt": "one"})
            await ctx.run_workflow("inner")
            await ctx.run("claude", {"prompt": "two", "resume": first["attributes"]["thread"]})

        client = Client(Api(session))
        run = await client.start(workflow="outer", wait=True)
        conversation = await conversation_of(client, run.run_id)
    paths = [[turn.path for turn in thread.turns] for thread in conversation.threads]
    assert paths == [["/claude", "/claude[2]"], ["/inner/claude"]]
