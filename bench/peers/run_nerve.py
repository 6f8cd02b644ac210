"""The workloads on Nerve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from subject import main

from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext, WorkflowEvent


async def echo(context: ExecutionContext) -> Any:
    return context.input


async def steps(ctx: WorkflowContext) -> None:
    for number in range(ctx.input):
        await ctx.run("echo", number)


async def ask(ctx: WorkflowContext) -> Any:
    return await ctx.gate("Continue?", choices=["yes", "no"])


class NerveSubject:
    durability = "power loss: WAL, synchronous FULL; each step, gate and answer"
    gate_runs = 100
    session: Session

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        self.session = Session("bench", folder / "nerve.db")
        FunctionNode("echo", self.session, echo)
        Workflow("steps", self.session, steps)
        Workflow("ask", self.session, ask)
        async with self.session:
            yield

    async def run_steps(self, steps: int) -> None:
        run = await self.session.start("steps", steps)
        await run.wait()

    async def start_gate(self) -> Any:
        """Return after the gate event is published, so that the gate is durable."""
        gate_published = asyncio.Event()

        def sink(event: WorkflowEvent) -> None:
            if event.event_type == "gate_waiting":
                gate_published.set()

        run = await self.session.start("ask", event_sink=sink)
        await gate_published.wait()
        return run

    async def answer_gate(self, run: Any) -> None:
        await run.answer("yes")
        await run.wait()


main(NerveSubject())
