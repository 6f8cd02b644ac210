"""What the tests of runs share."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nerve import ExecutionContext, FunctionNode, Session, WorkflowRun

Body = Callable[[Any], Awaitable[Any]]


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Let the loop turn until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not reached in {seconds} s"
        await asyncio.sleep(0.001)


async def at_gate(run: WorkflowRun) -> None:
    """Return when a gate is open, and that is on disk if it is the run's own."""
    await until(lambda: run.pending_gate and (run.view.gates or run._children))


async def within(awaitable: Awaitable[Any], seconds: float = 10.0) -> Any:
    """The value, or a failed test when it takes too long."""
    return await asyncio.wait_for(awaitable, seconds)


class Tidying:
    """A leaf that is told to end, and takes its time to tidy up."""

    def __init__(self) -> None:
        self.entered, self.tidied = asyncio.Event(), asyncio.Event()

    async def leaf(self, context: ExecutionContext) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.tidied.wait()


def types(run: WorkflowRun) -> list[str]:
    return [event.event_type for event in run.events]


def data_of(run: WorkflowRun, event_type: str) -> list[dict[str, Any]]:
    return [event.data for event in run.events if event.event_type == event_type]


def counted(session: Session, id: str, fn: Callable[[Any], Any] = lambda given: given) -> list[Any]:
    """Register a node; the list has the inputs it was executed with."""
    seen: list[Any] = []

    async def node(context: ExecutionContext) -> Any:
        seen.append(context.input)
        return fn(context.input)

    FunctionNode(id, session, node)
    return seen


class Latch:
    """A leaf that says when it was entered, and ends when it is let through."""

    def __init__(self) -> None:
        self.entered, self.open = asyncio.Event(), asyncio.Event()
        self.inputs: list[Any] = []

    async def leaf(self, context: ExecutionContext) -> Any:
        self.inputs.append(context.input)
        self.entered.set()
        await self.open.wait()
        return context.input


def photographed(file: Path, place: Path) -> Path:
    """A copy of the file as it is on disk this moment, as after a crash."""
    place.mkdir()
    for part in file.parent.glob(f"{file.name}*"):
        if part.suffix != ".lock" and not part.name.endswith("-shm"):
            shutil.copy(part, place / part.name)
    return place / file.name
