"""A worker of a project: connects to Temporal and PostgreSQL, and executes leaves until it is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from nerve.core.workflow.workspace_block import FRESH_PLACE
from nerve.errors import EngineUnavailable
from nerve.lazy_dataclass import dataclass
from nerve.session.run_workspaces import RunWorkspaces
from nerve.session.temporal_api import refuse_encryption, use_cluster_engine

if TYPE_CHECKING:
    from nerve.engine.temporal.messages import LeafInput, LeafResult
    from nerve.project.config import Placement
    from nerve.project.engine_url import TemporalAddress
    from nerve.session.session import Session


@dataclass(frozen=True, slots=True)
class LeafWorkerOptions:
    """What a worker executes, and where."""

    engine: TemporalAddress
    store: str
    """The URL of the database in PostgreSQL."""
    leaves: Sequence[str]
    """Names of providers, and `bash` for the leaves that are not agents."""
    slots: int
    """The maximum number of concurrent leaves of each queue."""
    place: Placement | None = None
    """`host` if all leaves of a run must run on one machine, `shared` if any machine has the files, `fresh`
    if each run must have a worktree on one machine; None for the configuration of the project."""
    host: str = ""
    """The name of this machine; empty for its host name."""


@asynccontextmanager
async def open_leaf_worker(
    session: Session,
    options: LeafWorkerOptions,
    on_failed: Callable[[LeafInput, LeafResult], None] | None = None,
) -> AsyncIterator[list[str]]:
    """Execute leaves inside the block, which gets the names of the queues; at its end they are interrupted.

    Interrupted leaves run again on other workers, and those with `effect="once"` are in doubt. `on_failed` is
    called with each leaf that has failed.
    """
    refuse_encryption(session)
    try:
        from nerve.engine.temporal.client import connect_client
        from nerve.engine.temporal.cluster_slots import ClusterSlots
        from nerve.engine.temporal.leaf_activity import LeafExecutor
        from nerve.engine.temporal.leaf_worker import LeafWorker, host_name, queues_of
        from nerve.engine.temporal.payloads import make_data_converter
        from nerve.store.postgres_projection import PostgresProjection
        from nerve.store.postgres_slots import PostgresSlots
        from nerve.store.projected_store import ProjectedStore
    except ImportError as error:
        fix = "Install it: pip install '.[temporal]' in the clone of Nerve"
        raise EngineUnavailable(f"A worker needs the package temporalio: {error}", fix) from None
    with (
        closing(PostgresProjection(options.store, session.name, str(options.engine))) as projection,
        closing(ProjectedStore(options.store, projection)) as store,
        closing(PostgresSlots(options.store, session.name)) as slots,
    ):
        session.provider_slots.shared = ClusterSlots(slots)
        if session.read_telemetry_settings() is not None:
            from nerve.telemetry.journal_tracing import WorkerTracing

            session.tracing = WorkerTracing(store)
        client = await connect_client(options.engine, make_data_converter(projection))
        use_cluster_engine(session, store, client, projection)
        host, place = options.host or host_name(), options.place or session.config.place
        named_host = None if place == "shared" else host
        executor = LeafExecutor(session, client, projection, store, named_host, is_fresh=place == FRESH_PLACE)
        executor.on_failed = on_failed
        queues = queues_of(session.name, options.leaves, host)
        # Workspaces of runs that ended when no worker was here.
        await RunWorkspaces(session.project).close_ended(store)
        async with LeafWorker(client, executor, queues, options.slots).running():
            yield queues
