"""What the tests of nodes share."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from nerve import ExecutionContext, FunctionNode, Session, WorkflowEvent, WorkflowRun
from nerve.core.nodes import Graph, Node, Result


async def executed(node: Node, input: Any = None, **given: Any) -> Result:
    """The result of a node by itself, without a run."""
    return await node.execute(ExecutionContext(session=node.session, input=input, **given))


async def watched(node: Node, input: Any = None) -> tuple[Result, list[WorkflowEvent]]:
    """The result of a node by itself, and the events on the way."""
    events: list[WorkflowEvent] = []
    return await executed(node, input, event_sink=events.append), events


async def ran(session: Session, node: Node, input: Any = None) -> WorkflowRun:
    """A finished run of a node; `wait()` gives its value or raises."""
    session.register_workflow(node)
    run = await session.start(str(node.id), input)
    await asyncio.wait([asyncio.ensure_future(run.wait())], timeout=10)
    assert run.is_complete, run
    return run


def of_type(events: list[WorkflowEvent], name: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.event_type == name]


def function(session: Session, id: str, fn: Callable[[Any], Any]) -> FunctionNode:
    """An async leaf that gives what `fn` makes of its input."""

    async def leaf(context: ExecutionContext) -> Any:
        return fn(context.input)

    return FunctionNode(id, session, leaf)


def step_outputs(result: Result) -> dict[str, Any]:
    return {name: step["output"] for name, step in result["attributes"]["steps"].items()}


def one_step(session: Session, node: Node, id: str = "only") -> Graph:
    """A graph of the node alone."""
    return Graph(id, session).add_step(node, "step")


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Let the loop turn until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not reached in {seconds} s"
        await asyncio.sleep(0.001)
