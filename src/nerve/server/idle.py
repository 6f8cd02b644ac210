"""A server that ends when it is not needed: nobody is connected, and nothing in it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from nerve.core.workflow import WorkflowState

if TYPE_CHECKING:
    from nerve.core.session import Session

LOOKS = 5
"""How often it is looked in the time after which it ends."""
MOVING = [
    state.value for state in WorkflowState if state.value in ("pending", "running", "pausing", "stopping")
]


async def idle(seconds: float, session: Session, connected: Callable[[], bool]) -> None:
    """Return when for so many seconds nobody was connected and no run could go on by itself."""
    quiet = 0
    while quiet < LOOKS:
        await asyncio.sleep(seconds / LOOKS)
        quiet = 0 if connected() or moves(session) else quiet + 1


def moves(session: Session) -> bool:
    """Whether a run goes on without anybody doing anything, now or when its time comes."""
    engine = session.engine
    alone = {left.run for left in engine.left_alone} - set(engine.drives)
    rows = engine.store.runs(session=session.name, states=[*MOVING, WorkflowState.WAITING.value])
    return any(row.run not in alone and (row.state in MOVING or row.wake is not None) for row in rows)
