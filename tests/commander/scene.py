"""A Commander with a real in-process API, and helpers for its tests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from nerve import Session
from nerve.api import Api
from nerve.client import Client
from nerve.commander import WorkflowController
from nerve.commander.core.blocks import Block


def session_of(folder: Path | None = None) -> Session:
    """Return a session with the workflows of the tests."""
    session = Session(store=folder / "nerve.db" if folder is not None else None, project=folder or Path())

    @session.workflow
    async def hello(ctx: Any) -> Any:
        """Greets."""
        return {"said": f"hello {ctx.input}", "params": ctx.params}

    @session.workflow
    async def ask(ctx: Any) -> Any:
        return f"you said {await ctx.gate('Go on?', choices=['yes', 'no'])}"

    @session.workflow
    async def open_question(ctx: Any) -> Any:
        return await ctx.gate("What?")

    @session.workflow
    async def nested(ctx: Any) -> Any:
        return await ctx.run_workflow("ask")

    @session.workflow
    async def chatty(ctx: Any) -> int:
        for number in range(int(ctx.input)):
            ctx.emit("output_chunk", {"stream": "partial", "text": f"{number} "})
            if number % 50 == 0:
                await asyncio.sleep(0)
        return int(ctx.input)

    @session.workflow
    async def wait_for(ctx: Any) -> Any:
        return await ctx.wait_signal(str(ctx.input))

    @session.workflow
    async def broken(ctx: Any) -> Any:
        raise ValueError("no luck")

    @session.node
    async def shout(context: Any) -> str:
        return str(context.input).upper()

    return session


class Scene:
    """A controller with its state."""

    def __init__(self, controller: WorkflowController, api: Api | None = None) -> None:
        self.controller, self.api = controller, api
        self.state, self.client = controller.state, controller.client

    async def enter(self, *lines: str) -> None:
        for line in lines:
            await self.controller.submit(line)

    async def until(self, condition: Callable[[], Any], seconds: float = 20) -> None:
        """Return when the condition holds."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self.controller.wait_for_change()

    async def ended(self, *blocks: Block) -> None:
        await self.until(lambda: all(block.done for block in blocks or self.runs))

    @property
    def runs(self) -> list[Block]:
        return [block for block in self.state.blocks if block.kind == "run"]

    @property
    def last(self) -> Block:
        return self.state.blocks[-1]

    @property
    def errors(self) -> list[str]:
        return [block.text for block in self.state.blocks if block.kind == "error"]


@contextlib.asynccontextmanager
async def scene(folder: Path | None = None, renderer: Any = None) -> AsyncIterator[Scene]:
    async with session_of(folder) as session:
        api = Api(session)
        controller = WorkflowController(Client(api), renderer)
        await controller.open()
        try:
            yield Scene(controller, api)
        finally:
            await controller.close()
