"""A run and a step, live or replayed, execute a bounded number of instructions whatever the load is."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import nerve
from nerve import FunctionNode, Session, Workflow, WorkflowContext
from nerve.core.nodes.context import ExecutionContext
from nerve.lazy_dataclass import CALLS_WITHOUT_CODE
from nerve.store.memory import MemoryStore

pytestmark = pytest.mark.local("measures this process")

PACKAGE = Path(nerve.__file__).parent
STORE = str(PACKAGE / "store")
MAX_OF_RUN = 4300
"""Instructions of a run without steps: those of the engine and the session, not those of the store."""
MAX_OF_STEP = 1811
MAX_OF_REPLAYED_STEP = 1818
"""Instructions of a step whose outcome is in the journal, without those that read it from the store."""
MAX_OF_GATE = 4500
"""Instructions of a gate that is answered at once, in addition to those of its run."""


async def echo(context: ExecutionContext) -> Any:
    return context.input


async def run_steps(ctx: WorkflowContext) -> None:
    for number in range(ctx.input):
        await ctx.run("echo", number)


async def ask(ctx: WorkflowContext) -> Any:
    return await ctx.gate("Continue?", choices=["yes", "no"])


async def start_runs(runs: int, workflow: str, input: Any = None) -> None:
    """Execute several runs at the same time, so that they share commits."""
    session = Session("test", MemoryStore())
    FunctionNode("echo", session, echo)
    Workflow("steps", session, run_steps)
    Workflow("ask", session, ask)
    async with session:
        started = [await session.start(workflow, input) for _ in range(runs)]
        if workflow == "ask":
            for run in started:
                assert await run.next_gate() is not None
                await run.answer("yes")
        await asyncio.gather(*(run.wait() for run in started))


def count_instructions(execute: Callable[[], Awaitable[None]]) -> int:
    """Return the number of bytecode instructions of the package that are executed, without the store."""
    count = 0

    def trace_instruction(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return trace_instruction

    def trace_call(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(str(PACKAGE)) or file.startswith(STORE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace_instruction

    previous = sys.gettrace()
    gc.disable()
    sys.settrace(trace_call)
    try:
        asyncio.run(execute())
    finally:
        sys.settrace(previous)
        gc.enable()
    return count


async def run_steps_and_end_there(ctx: WorkflowContext) -> None:
    await run_steps(ctx)
    await ctx.gate("Continue?")


async def record_steps(store: MemoryStore, steps: int) -> None:
    """Record a run that waits at a gate after some steps."""
    session = Session("test", store)
    FunctionNode("echo", session, echo)
    Workflow("steps", session, run_steps_and_end_there)
    async with session:
        run = await session.start("steps", steps)
        assert await run.next_gate() is not None


async def replay_steps(store: MemoryStore) -> None:
    session = Session("test", store)
    FunctionNode("echo", session, echo)
    Workflow("steps", session, run_steps_and_end_there)
    async with session:
        [run] = await session.recover()
        await run.answer("yes")
        await run.wait()


def cost_of_replay(steps: int) -> int:
    store = MemoryStore()
    asyncio.run(record_steps(store, steps))
    return count_instructions(lambda: replay_steps(store))


def cost_of_run(workflow: str, input: Any = None) -> float:
    """Return the number of instructions of one run more."""
    # Fills the caches, and compiles the constructors.
    asyncio.run(start_runs(CALLS_WITHOUT_CODE + 1, workflow, input))
    fewer = count_instructions(lambda: start_runs(10, workflow, input))
    return (count_instructions(lambda: start_runs(30, workflow, input)) - fewer) / 20


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each version of Python has its own instructions")
def test_a_run_a_step_and_a_gate_execute_few_instructions() -> None:
    of_run = cost_of_run("steps", 0)
    of_step = (cost_of_run("steps", 5) - of_run) / 5
    of_gate = cost_of_run("ask") - of_run
    assert of_run <= MAX_OF_RUN, of_run
    assert of_step <= MAX_OF_STEP, of_step
    assert of_gate <= MAX_OF_GATE, of_gate


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each version of Python has its own instructions")
def test_a_replayed_step_executes_few_instructions() -> None:
    cost_of_replay(20)  # fills the caches
    of_step = (cost_of_replay(120) - cost_of_replay(20)) / 100
    assert of_step <= MAX_OF_REPLAYED_STEP, of_step
