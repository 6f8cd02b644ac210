"""The workspaces of runs that have ended: removed, unless they have work that is not merged."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.core.events import END_EVENTS
from nerve.core.workflow.state import FINAL_STATE_VALUES

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.store.port import EventRow, Store

FOLDER = ".nerve/workspaces"


class RunWorkspaces:
    """A watcher of the engine that removes the workspaces of a run when the run has ended."""

    def __init__(self, project: Path) -> None:
        self._project = project.absolute()
        self._folder = str(self._project / FOLDER)
        self._tasks: set[asyncio.Task[None]] = set()

    def on_events(self, run: WorkflowRun, rows: Sequence[EventRow]) -> None:
        """Remove the workspaces of a run whose end is among these events, in the background."""
        # Nothing follows the end of a run. The path is a string because this happens at the end of every run.
        if rows[-1].type not in END_EVENTS or not os.path.isdir(f"{self._folder}/{run.run_id}"):
            return
        task = asyncio.ensure_future(self._close([run.run_id]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close_ended(self, store: Store) -> None:
        """Remove the workspaces of runs that ended when no process was there to do it."""
        folder = self._project / FOLDER
        if not folder.is_dir():
            return
        names = [path.name for path in folder.iterdir() if path.is_dir()]
        ended = [name for name in names if (row := store.run(name)) and row.state in FINAL_STATE_VALUES]
        await self._close(ended)

    async def _close(self, runs: list[str]) -> None:
        from nerve.workspaces.checkout import close_finished  # imported here: few runs have workspaces

        await asyncio.to_thread(close_finished, self._project, runs)

    async def wait(self) -> None:
        """Return when no removal is running."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
