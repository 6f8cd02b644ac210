"""Helpers of the tests of runs."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nerve import ExecutionContext, FunctionNode, Session, WorkflowRun

Body = Callable[[Any], Awaitable[Any]]


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not reached in {seconds} s"
        await asyncio.sleep(0.001)


async def at_gate(run: WorkflowRun) -> None:
    """Wait until a gate is open, and recorded if it belongs to the run itself."""
    await until(lambda: run.pending_gate and (run.view.gates or run.run_state.children))


async def within(awaitable: Awaitable[Any], seconds: float = 30.0) -> Any:
    """Return the value of an awaitable; fail the test after a timeout."""
    return await asyncio.wait_for(awaitable, seconds)


class SlowCleanup:
    """A leaf whose cleanup after a cancellation takes until `tidied` is set."""

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


def counted(session: Session, id: str, fn: Callable[[Any], Any] = lambda value: value) -> list[Any]:
    """Register a node and return the list of the inputs it is executed with."""
    seen: list[Any] = []

    async def node(context: ExecutionContext) -> Any:
        seen.append(context.input)
        return fn(context.input)

    FunctionNode(id, session, node)
    return seen


class Latch:
    """A leaf that sets `entered` when it starts, and ends when `open` is set."""

    def __init__(self) -> None:
        self.entered, self.open = asyncio.Event(), asyncio.Event()
        self.inputs: list[Any] = []

    async def leaf(self, context: ExecutionContext) -> Any:
        self.inputs.append(context.input)
        self.entered.set()
        await self.open.wait()
        return context.input


def copy_store(file: Path, directory: Path) -> Path:
    """Copy the store as it is on disk now, as after a crash, and return the copy."""
    directory.mkdir()
    for part in file.parent.glob(f"{file.name}*"):
        if part.suffix != ".lock" and not part.name.endswith("-shm"):
            shutil.copy(part, directory / part.name)
    return directory / file.name
