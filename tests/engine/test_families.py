"""Parents and their children, among many other runs."""

from __future__ import annotations

from typing import Any

import pytest

from core.workflow.support import at_gate
from nerve import Session, WorkflowContext, WorkflowRun, WorkflowState
from nerve.store.memory import MemoryStore


class Counting(MemoryStore):
    """Counts how often the runs are listed."""

    looks = 0

    def runs(self, *given: Any, **more: Any) -> Any:
        self.looks += 1
        return super().runs(*given, **more)


async def ask(ctx: WorkflowContext) -> Any:
    return await ctx.gate("Go on?")


async def parent(ctx: WorkflowContext) -> Any:
    return await ctx.run_workflow("ask")


async def grandparent(ctx: WorkflowContext) -> Any:
    return await ctx.run_workflow("parent")


def states(run: WorkflowRun) -> list[WorkflowState]:
    below = [state for child in run.run_state.children.values() for state in states(child)]
    return [run.run_state.status, *below]


@pytest.mark.local("looks into the store")
async def test_commands_on_a_run_reach_its_children_without_reading_other_runs() -> None:
    store = Counting()
    session = Session("test", store)
    for body in (ask, parent, grandparent):
        session.workflow(body)
    run = await session.start("grandparent")
    await at_gate(run)
    store.looks = 0
    await run.pause()
    assert states(run) == [WorkflowState.PAUSED] * 3
    await run.resume()
    assert states(run)[-1] is WorkflowState.WAITING
    await run.stop()
    assert store.looks == 0
    assert {row.state for row in store.runs()} == {"cancelled"}
