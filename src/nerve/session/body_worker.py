"""A worker of a project that executes runs: connects to Temporal and PostgreSQL until it is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from nerve.errors import EngineUnavailable
from nerve.session.temporal_api import refuse_encryption

if TYPE_CHECKING:
    from nerve.project.engine_url import TemporalAddress
    from nerve.session.session import Session


@asynccontextmanager
async def open_body_worker(
    session: Session,
    engine: TemporalAddress,
    store: str,
    *,
    has_leaves: bool = False,
    is_promoted: bool = False,
) -> AsyncIterator[str]:
    """Execute the bodies of runs inside the block, which gets the name of the queue.

    `store` is the URL of a database in PostgreSQL. Runs that are in memory at the end continue on another
    worker, from their histories. `has_leaves` says that a leaf worker uses the session, too. The build of
    the worker gets new runs if no other build does, or if it is promoted.
    """
    refuse_encryption(session)
    try:
        from nerve.engine.hosted_engines import HostedEngines
        from nerve.engine.temporal.body_worker import run_body_worker
        from nerve.engine.temporal.client import connect_client
        from nerve.engine.temporal.messages import body_queue
        from nerve.engine.temporal.payloads import make_data_converter
        from nerve.engine.temporal.worker_builds import compute_build_id
        from nerve.store.memory import MemoryStore
        from nerve.store.postgres_projection import PostgresProjection
    except ImportError as error:
        fix = "Install it: pip install '.[temporal]' in the clone of Nerve"
        raise EngineUnavailable(f"A worker needs the package temporalio: {error}", fix) from None
    if not has_leaves:
        session.use_engine(HostedEngines())
    with closing(PostgresProjection(store, session.name, str(engine))) as projection:
        client = await connect_client(engine, make_data_converter(projection))
        build_id = compute_build_id(session)
        async with run_body_worker(
            client, session, MemoryStore, projection, build_id=build_id, is_promoted=is_promoted
        ):
            yield body_queue(session.name)
