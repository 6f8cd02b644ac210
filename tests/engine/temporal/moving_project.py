"""A session whose runs are moved, and a process that moves or rebases runs until it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nerve import Session, WorkflowContext
from nerve.core.nodes.context import ExecutionContext

EFFECTS_VARIABLE = "MOVED_EFFECTS"
"""The environment variable with the file to which every step adds its path."""


def register(session: Session) -> None:
    effects = Path(os.environ[EFFECTS_VARIABLE])

    @session.node(id="note")
    async def note(context: ExecutionContext) -> Any:
        add_line(effects, f"{context.run_id}{context.path}")
        return context.input

    @session.workflow
    async def child(ctx: WorkflowContext) -> Any:
        first = await ctx.run("note", "c1")
        answer = await ctx.gate("From the child?")
        last = await ctx.run("note", "c2")
        return [first.output, answer, last.output]

    @session.workflow
    async def long(ctx: WorkflowContext) -> Any:
        for number in range(ctx.input):
            await ctx.run("note", number)
        answer = await ctx.gate("Continue?")
        return [answer, (await ctx.run("note", ctx.input)).output]

    @session.workflow
    async def tour(ctx: WorkflowContext) -> Any:
        async def wait() -> str:
            await ctx.sleep(ctx.params.get("seconds", 0.5))
            return "slept"

        steps = [(await ctx.run("note", number)).output for number in range(4)]
        async with asyncio.TaskGroup() as group:
            called = group.create_task(ctx.run_workflow("child", None))
            slept = group.create_task(wait())
            asked = group.create_task(ctx.gate("Continue?"))
        last = (await ctx.run("note", "end")).output
        return [steps, called.result(), slept.result(), asked.result(), last]


def add_line(file: Path, line: str) -> None:
    with file.open("a") as opened:
        opened.write(f"{line}\n")


def kill_before(owner: Any, name: str, is_reached: Callable[[], bool]) -> None:
    """End this process without a chance to write anything when a function is called at a point."""
    function = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if is_reached():
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(owner, name, call)


def count_to(point: int) -> Callable[[], bool]:
    """Return a function that is true from the call after a number of calls on."""
    count = 0

    def is_reached() -> bool:
        nonlocal count
        count += 1
        return count > point

    return is_reached


def main(point: int, verb: str, source: str, engine: str, store: str) -> None:
    """Move all runs from a store, or rebase a run, and die before the durable action with a number."""
    from temporalio.client import WorkflowHandle

    from nerve.engine.temporal.projected_runs import ProjectedRuns
    from nerve.project.engine_url import parse_engine_url
    from nerve.session.moved_runs import move_runs, open_projected_runs, rebase_run
    from nerve.store.postgres_projection import PostgresProjection
    from nerve.store.sqlite import SqliteStore

    is_reached, address = count_to(point), parse_engine_url(engine)
    kill_before(SqliteStore, "append", is_reached)
    kill_before(PostgresProjection, "append", is_reached)
    kill_before(PostgresProjection, "forget_attempts", is_reached)
    kill_before(ProjectedRuns, "start", is_reached)
    kill_before(WorkflowHandle, "terminate", is_reached)

    async def move() -> None:
        async for _ in move_runs(source, lambda _: None, address, store):
            pass

    async def rebase() -> None:
        async with open_projected_runs(address, store, "default") as runs:
            row = runs.store.run(source)
            assert row is not None
            await rebase_run(runs, row)

    asyncio.run(move() if verb == "move" else rebase())


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
