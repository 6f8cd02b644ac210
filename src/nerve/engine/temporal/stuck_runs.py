"""Runs whose workflows fail all their tasks: lists show them as held, with the way on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from temporalio.service import RPCError, RPCStatusCode

from nerve.core.json_codec import decode_json, encode_json
from nerve.core.workflow.state import WorkflowState
from nerve.engine.temporal.messages import body_queue
from nerve.journal.events import RunOnHold
from nerve.store.port import RunRow

if TYPE_CHECKING:
    from temporalio.client import Client

log = logging.getLogger(__name__)

STUCK_REASON = "stuck"
"""The reason of the hold that lists show."""
PROBLEMS = "TemporalReportedProblems"
"""The search attribute that Temporal sets after some failed tasks in a row: three, with our settings."""
QUERY = (
    'ExecutionStatus = "Running" AND TaskQueue = "{}" AND '
    f'{PROBLEMS} IN ("category=WorkflowTaskFailed", "category=WorkflowTaskTimedOut")'
)
MAX_STUCK_RUNS = 1000
REFRESH_S = 10.0


class StuckRun(NamedTuple):
    """A run whose workflow does not continue."""

    run: str
    """The first run of the family."""
    cause: str
    """What Temporal says, such as `NonDeterministicError`."""
    failed_tasks: int
    """The number of its tasks that have failed one after another."""

    @property
    def message(self) -> str:
        return (
            f"{self.failed_tasks} tasks of its workflow have failed ({self.cause}). Start workers with the"
            f" code that began it, or continue it from its journal: nerve rebase {self.run}"
        )


async def find_stuck_runs(client: Client, session: str) -> list[StuckRun]:
    """Return the stuck runs of a session; none if the server does not report them."""
    found: list[StuckRun] = []
    try:
        async for execution in client.list_workflows(QUERY.format(body_queue(session)), limit=MAX_STUCK_RUNS):
            described = await client.get_workflow_handle(execution.id).describe()
            problems = described.raw_description.workflow_execution_info.search_attributes.indexed_fields
            causes = decode_json(problems[PROBLEMS].data.decode()) if PROBLEMS in problems else []
            names = [text.rpartition("=")[2] for text in causes]
            attempt = described.raw_description.pending_workflow_task.attempt
            if names:
                cause = names[-1].removeprefix("WorkflowTaskFailedCause")
                found.append(StuckRun(execution.id, cause, max(attempt - 1, 0)))
    except RPCError as error:
        # A server before 1.30 does not know the attribute.
        if error.status not in (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.NOT_FOUND):
            raise
    return found


class StuckRuns:
    """The stuck runs of a session, looked up again and again."""

    def __init__(self, client: Client, session: str) -> None:
        self._client, self._session = client, session
        self._messages: Mapping[str, str] = {}
        self.problem: str | None = None
        """Why the runs are not known, if Temporal did not answer the last time."""

    @property
    def runs(self) -> list[str]:
        """The ids of the runs."""
        return list(self._messages)

    async def refresh(self) -> None:
        try:
            found = await find_stuck_runs(self._client, self._session)
        except RPCError as error:
            log.info("stuck runs are not known: %s", error)
            self.problem = f"Temporal does not answer ({error})"
        else:
            self.problem = None
            self._messages = {stuck.run: stuck.message for stuck in found}

    async def watch(self) -> None:
        """Refresh until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    def show(self, row: RunRow) -> RunRow:
        """Return the row of a run as lists show it: a stuck one is held."""
        message = self._messages.get(row.run)
        if message is None or row.ended is not None:
            return row
        summary = {} if row.summary is None else decode_json(row.summary)
        hold = RunOnHold(STUCK_REASON, message).to_data()
        return row._replace(
            state=WorkflowState.HELD.value, summary=encode_json({**summary, "hold": hold}, max_depth=None)
        )
