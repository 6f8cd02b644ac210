"""Idle shutdown: the server exits without connections and active runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from nerve.core.workflow import WorkflowState

if TYPE_CHECKING:
    from nerve.session import Session

CHECKS_PER_PERIOD = 5
"""Number of checks within the idle period."""
CONTINUING_STATES = ("pending", "running", "pausing", "stopping")
"""States in which a run continues by itself."""


async def wait_until_server_idle(seconds: float, session: Session, connected: Callable[[], bool]) -> None:
    """Return after this many seconds without connections and without runs that can continue by themselves."""
    quiet = 0
    while quiet < CHECKS_PER_PERIOD:
        await asyncio.sleep(seconds / CHECKS_PER_PERIOD)
        quiet = 0 if connected() or has_active_runs(session) else quiet + 1


def has_active_runs(session: Session) -> bool:
    """Whether a run is active or has a timer that will wake it."""
    engine = session.engine
    skipped_ids = {skipped.run for skipped in engine.skipped_runs} - set(engine.executors)
    rows = engine.store.runs(session=session.name, states=[*CONTINUING_STATES, WorkflowState.WAITING.value])
    return any(
        row.run not in skipped_ids and (row.state in CONTINUING_STATES or row.wake is not None)
        for row in rows
    )
