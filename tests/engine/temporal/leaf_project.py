"""A project whose leaves the workers of the tests execute."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from nerve import FunctionNode, Session
from nerve.agents.agent_node import AgentNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import GateWait
from nerve.core.steering import SteeringQueue
from nerve.testing import ScriptedProvider

SESSION = "team"


def open_project(folder: Path) -> Session:
    """Return a session with the nodes of the tests."""
    provider = ScriptedProvider(lambda call: f"<{call.prompt}>")
    session = Session(SESSION, project=folder, providers={"scripted": provider})
    AgentNode("writer", session, "scripted")
    FunctionNode("upper", session, lambda context: str(context.input).upper())
    FunctionNode("fail", session, fail)
    FunctionNode("object", session, lambda context: object())
    FunctionNode("talk", session, talk)
    FunctionNode("describe", session, describe)
    FunctionNode("sleep", session, sleep)
    FunctionNode("ask", session, ask)
    FunctionNode("listen", session, listen)
    return session


def fail(context: ExecutionContext) -> None:
    raise LookupError("it broke")


async def talk(context: ExecutionContext) -> str:
    """Emit an event, then wait until the file that the input names exists."""
    context.emit("said", {"text": "first"})
    while True:
        if (context.session.project / context.input).exists():
            break
        await asyncio.sleep(0.02)
    context.emit("said", {"text": "second"})
    return "done"


def describe(context: ExecutionContext) -> dict[str, Any]:
    return {
        "path": context.path,
        "run": context.run_id,
        "workflow": context.workflow_id,
        "params": context.params,
        "overrides": context.overrides,
        "project": str(context.session.project),
        "is_restarted": context.leaf_runtime.is_restarted,
    }


def sleep(context: ExecutionContext) -> None:
    time.sleep(context.input)


async def ask(context: ExecutionContext) -> Any:
    return await context.leaf_runtime.ask(GateWait(f"{context.path}/question", "Go on?", ["yes", "no"]))


async def listen(context: ExecutionContext) -> list[str]:
    """Return a number of messages of users."""
    messages = context.leaf_runtime.steering = SteeringQueue()
    context.emit("listening", {})
    return [await messages.get() for _ in range(context.input)]
