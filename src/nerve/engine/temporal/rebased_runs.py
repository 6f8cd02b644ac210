"""Rebase a run: end its workflow, and let a new one continue from the journals.

That is for a run whose workflow cannot continue: the code of the workers cannot replay its history.
Whatever the history has and the projection does not is written to the projection first: rows that workers had
not written yet, and the results of leaves that the workflow had not recorded.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from nerve.core.workflow.state import OPEN_STATE_VALUES
from nerve.engine.run_chain import find_current_row
from nerve.engine.temporal.history_rows import (
    HistoryContent,
    find_leaf_rows,
    find_lost_commands,
    group_by_run,
    read_history,
)
from nerve.engine.temporal.projected_runs import ProjectedRuns, find_workflow_id

if TYPE_CHECKING:
    from typing import Any

    from temporalio.client import WorkflowHandle

    from nerve.store.port import RunRow

REASON = "continued from its journal: nerve rebase"


class RunRebase:
    """Lets open runs begin again in new workflows."""

    def __init__(self, runs: ProjectedRuns) -> None:
        self._runs = runs

    async def rebase(self, row: RunRow) -> RunRow:
        """Begin the family of a run again; return the run that no other run called.

        It can be repeated if it was interrupted.
        """
        row = self._find_top(row)
        if row.state not in OPEN_STATE_VALUES:
            raise ValueError(f"Run '{row.run}' has ended")
        handle = self._runs.client.get_workflow_handle(find_workflow_id(self._runs.store, row.run))
        content = await self._end(handle)
        if content is None:
            await self._runs.start(row.run)
            return row
        ends = await self._write(content)
        row = self._find_top(row)
        if row.state in OPEN_STATE_VALUES:
            commands = [command.to_data() for command in find_lost_commands(content, ends)]
            kept = {"host": content.host, "workspaces": content.workspaces, "commands": commands}
            await self._runs.start(row.run, again=True, **kept)
        return row

    def _find_top(self, row: RunRow) -> RunRow:
        while row.parent is not None and (parent := self._runs.store.run(row.parent)) is not None:
            row = parent
        return find_current_row(self._runs.store, self._runs.store.run(row.run) or row)

    async def _end(self, handle: WorkflowHandle[Any, Any]) -> HistoryContent | None:
        """Terminate a workflow, and return the content of its last history; None if it never existed."""
        try:
            described = await handle.describe()
            if described.status is WorkflowExecutionStatus.RUNNING:
                await handle.terminate(REASON)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        last = self._runs.client.get_workflow_handle(handle.id, run_id=described.run_id)
        history = await last.fetch_history()
        return await read_history(history.events, self._runs.client.data_converter)

    async def _write(self, content: HistoryContent) -> dict[str, int]:
        """Write what the projection lacks; return the number of the last row that each run had sent."""
        projection, store = self._runs.projection, self._runs.store
        parts = group_by_run(content.parts)
        for run, run_parts in parts.items():
            await asyncio.to_thread(projection.append, run, run_parts)
        ends: dict[str, int] = {}
        for run in {*parts, *(each.leaf.run_id for each in content.leaves)}:
            row, rows = store.run(run), await asyncio.to_thread(projection.body_rows, run)
            if row is None or not rows:
                continue
            ends[run] = rows[-1].seq
            leaves = [each for each in content.leaves if each.leaf.run_id == run]
            if (part := find_leaf_rows(row, rows, leaves)) is not None:
                await asyncio.to_thread(projection.append, run, [part])
            await asyncio.to_thread(projection.forget_attempts, run)
        return ends
