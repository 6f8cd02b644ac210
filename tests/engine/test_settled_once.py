"""A wait settles once, whoever is about to settle it: a person, a fact, the clock, or the body that gives it up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import photographed, within
from nerve import FunctionNode, Session, WorkflowRun

# -- given up after it was answered ------------------------------------------------------------


async def asks_beside(ctx):
    """A gate that is given up when the step beside it is done."""
    asking = asyncio.create_task(ctx.gate("Cancel the check?"))
    checked = await ctx.run("check")
    asking.cancel()
    await asyncio.wait([asking])
    return [checked.output, (await ctx.run("check")).output]


async def hears_beside(ctx):
    """The same with a signal."""
    hearing = asyncio.create_task(ctx.wait_signal("stop"))
    checked = await ctx.run("check")
    hearing.cancel()
    await asyncio.wait([hearing])
    return [checked.output, (await ctx.run("check")).output]


def opened(file: Path, *workflows: Any) -> tuple[Session, list[str]]:
    session = Session("test", file)
    done: list[str] = []

    async def check(context: Any) -> str:
        done.append(context.path)
        return "fine"

    FunctionNode("check", session, check)
    for workflow in workflows:
        session.workflow(workflow)
    return session, done


async def crashed(file: Path, place: Path, after: str, workflow: Any) -> Path:
    """The file as it was when the first event of a type had been written."""
    copies: list[Path] = []
    session, _ = opened(file, workflow)

    def crash(_: WorkflowRun, events: Any) -> None:
        if not copies and any(event.event_type == after for event in events):
            copies.append(photographed(file, place))

    async with session:
        session.engine.watchers.append(crash)
        await within((await session.start(workflow.__name__)).wait())
    return copies[0]


async def settle_early(run: WorkflowRun) -> None:
    if run.workflow_id == "asks_beside":
        await run.answer("no")
    else:
        assert await run.signal("stop", "now") == 1


@pytest.mark.parametrize("workflow", [asks_beside, hears_beside])
async def test_a_wait_that_is_settled_after_a_restart_and_then_given_up_holds_nothing(
    file: Path, tmp_path: Path, workflow: Any
) -> None:
    copy = await crashed(file, tmp_path / "copy", "node_completed", workflow)
    session, done = opened(copy, workflow)
    async with session:
        (run,) = await session.recover()
        await settle_early(run)
        assert await within(run.wait()) == ["fine", "fine"]
        assert done == ["/check[2]"]


@pytest.mark.parametrize("workflow", [asks_beside, hears_beside])
async def test_a_wait_that_was_settled_and_not_yet_given_up_when_the_process_ended_is_given_up(
    file: Path, tmp_path: Path, workflow: Any
) -> None:
    copy = await crashed(file, tmp_path / "copy", "node_completed", workflow)
    session, _ = opened(copy, workflow)
    copies: list[Path] = []

    def crash(_: WorkflowRun, events: Any) -> None:
        if any(event.event_type in ("gate_answered", "signal_received") for event in events):
            copies.append(photographed(copy, tmp_path / "again"))

    async with session:
        session.engine.watchers.append(crash)
        (run,) = await session.recover()
        await settle_early(run)
        await within(run.wait())
    for _ in range(2):
        session, done = opened(copies[0], workflow)
        async with session:
            for again in await session.recover():
                assert await within(again.wait()) == ["fine", "fine"]
                assert done == ["/check[2]"]
