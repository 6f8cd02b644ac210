"""Runs whose journals are in the projection: they begin in a workflow with what their bodies have written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from nerve.core.workflow.state import OPEN_STATE_VALUES
from nerve.engine.temporal.carried_runs import carry_family, check_length
from nerve.engine.temporal.messages import WORKFLOW_TYPE, RunInput, body_queue
from nerve.journal.index import read_start
from nerve.store.port import RunRow, Store

if TYPE_CHECKING:
    from temporalio.client import Client

    from nerve.store.postgres_projection import PostgresProjection


class ProjectedRuns:
    """Starts workflows for the runs of one session."""

    def __init__(self, client: Client, projection: PostgresProjection, store: Store, session: str) -> None:
        """`store` reads what the projection writes."""
        self.client, self.projection, self.store = client, projection, store
        self.session = session

    async def start(self, run_id: str, *, again: bool = False, **kept: Any) -> bool:
        """Start the workflow of an open run; return False if there is one.

        `kept` is what an earlier workflow has left: fields of `RunInput` such as `host`. A workflow that has
        ended counts as well, unless the run begins `again`.
        """
        journal = carry_family(self.store, run_id, self.projection.body_rows)
        check_length(run_id, journal)
        written = {part.run: part.rows[-1].seq for part in journal}
        given = RunInput(self.session, run_id, journal, written, **kept)
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
        try:
            await self.client.start_workflow(
                WORKFLOW_TYPE,
                given.to_data(),
                id=find_workflow_id(self.store, run_id),
                task_queue=body_queue(self.session),
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=reuse,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True


def find_open_families(store: Store, session: str) -> Iterator[RunRow]:
    """Yield the open runs of a session that no other run called; of a chain, the current run."""
    for row in store.runs(session=session, states=OPEN_STATE_VALUES):
        if row.parent is None:
            yield row


def find_workflow_id(store: Store, run_id: str) -> str:
    """Return the id of the workflow that executes a run: that of the first run of its family."""
    while (row := store.run(run_id)) is not None and row.parent is not None:
        run_id = row.parent
    return read_start(store, run_id).chain
