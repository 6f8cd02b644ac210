"""Helpers of the tests of nodes."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from nerve import ExecutionContext, FunctionNode, Session, WorkflowEvent, WorkflowRun
from nerve.core.nodes import Graph, Node, Result


async def execute_node(node: Node, input: Any = None, **fields: Any) -> Result:
    """Execute a node without a run and return its result."""
    return await node.execute(ExecutionContext(session=node.session, input=input, **fields))


async def execute_with_events(node: Node, input: Any = None) -> tuple[Result, list[WorkflowEvent]]:
    """Execute a node without a run and return its result and its events."""
    events: list[WorkflowEvent] = []
    return await execute_node(node, input, event_sink=events.append), events


async def run_node(session: Session, node: Node, input: Any = None) -> WorkflowRun:
    """Return a finished run of a node; `wait()` returns its value or raises."""
    session.register_workflow(node)
    run = await session.start(str(node.id), input)
    await asyncio.wait([asyncio.ensure_future(run.wait())], timeout=10)
    assert run.is_complete, run
    return run


def event_data(events: list[WorkflowEvent], name: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.event_type == name]


def function_node(session: Session, id: str, fn: Callable[[Any], Any]) -> FunctionNode:
    """Return an async leaf that applies `fn` to its input."""

    async def leaf(context: ExecutionContext) -> Any:
        return fn(context.input)

    return FunctionNode(id, session, leaf)


def step_outputs(result: Result) -> dict[str, Any]:
    return {name: step["output"] for name, step in result["attributes"]["steps"].items()}


def one_step(session: Session, node: Node, id: str = "only") -> Graph:
    """Return a graph with the node as its only step."""
    return Graph(id, session).add_step(node, "step")


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not reached in {seconds} s"
        await asyncio.sleep(0.001)
