"""A session whose runs a Temporal cluster executes, for the API of a server, a command, or a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Any

from nerve.background_tasks import run_in_background
from nerve.core.clock import SYSTEM_CLOCK
from nerve.core.workflow.workspace_block import FRESH_PLACE
from nerve.errors import EngineUnavailable

if TYPE_CHECKING:
    from nerve.engine.temporal.cluster_slots import ClusterSlots
    from nerve.project.engine_url import TemporalAddress
    from nerve.session.session import Session
    from nerve.store.port import Store
    from nerve.store.postgres import PostgresStore
    from nerve.store.postgres_projection import PostgresProjection


def refuse_encryption(session: Session) -> None:
    """Raise EngineUnavailable for a project with encryption, whose values a cluster would have readable."""
    if session.config.encryption is not None:
        problem = ".nerve/config.json has 'encryption', and runs in Temporal are not encrypted"
        raise EngineUnavailable(problem, "Remove it there, or let nerve serve execute the runs")


def use_cluster_engine(session: Session, store: Store, client: Any, projection: PostgresProjection) -> None:
    """Let the code of a worker, except in its workflows, start runs in Temporal and change facts.

    `client` is a client of Temporal.
    """
    from nerve.engine.hosted_engines import HostedEngines
    from nerve.engine.temporal.api_engine import TemporalEngine

    place = find_recorded_place(session)
    engine = TemporalEngine(store, session, session.name, SYSTEM_CLOCK, client, projection, place)
    session.use_engine(HostedEngines(lambda: engine))


def find_recorded_place(session: Session) -> str | None:
    """Return the place that runs have in their starts, if the configuration names one of them."""
    return FRESH_PLACE if session.config.place == FRESH_PLACE else None


def serve_worker_metrics(address: str) -> None:
    """Serve the metrics of the workers of this process for Prometheus at `HOST:PORT`."""
    try:
        from nerve.engine.temporal.client import serve_sdk_metrics
    except ImportError as error:
        raise temporalio_missing(error) from None
    serve_sdk_metrics(address)


def temporalio_missing(error: ImportError) -> EngineUnavailable:
    fix = "Install it: pip install '.[temporal]' in the clone of Nerve"
    return EngineUnavailable(f"Runs in Temporal need the package temporalio: {error}", fix)


@contextmanager
def open_leases(store_url: str, session: str) -> Iterator[ClusterSlots]:
    """Yield the leases with which one of several servers does something for a session."""
    from nerve.engine.temporal.cluster_slots import ClusterSlots
    from nerve.store.postgres_slots import PostgresSlots
    from nerve.telemetry.stream_telemetry import LEASE_S

    with closing(PostgresSlots(store_url, session)) as slots:
        yield ClusterSlots(slots, LEASE_S)


@asynccontextmanager
async def use_temporal_engine(
    session: Session, engine: TemporalAddress, store_url: str
) -> AsyncIterator[PostgresStore]:
    """Let a new session start and command runs in Temporal; yield its store, which is to be read."""
    refuse_encryption(session)
    try:
        from nerve.engine.temporal.api_engine import TemporalEngine
        from nerve.engine.temporal.client import connect_client
        from nerve.engine.temporal.cluster_slots import ClusterSlots
        from nerve.engine.temporal.payloads import make_data_converter
        from nerve.engine.temporal.stuck_runs import StuckRuns
        from nerve.store.postgres_projection import PostgresProjection
        from nerve.store.postgres_slots import PostgresSlots
        from nerve.store.projected_store import ProjectedStore
    except ImportError as error:
        raise temporalio_missing(error) from None
    projection = await asyncio.to_thread(PostgresProjection, store_url, session.name, str(engine))
    with closing(projection), closing(PostgresSlots(store_url, session.name)) as slots:
        client = await connect_client(engine, make_data_converter(projection))
        stuck = StuckRuns(client, session.name)
        await stuck.refresh()
        store = await asyncio.to_thread(ProjectedStore, store_url, projection, stuck)
        place = find_recorded_place(session)
        session.use_engine(
            TemporalEngine(store, session, session.name, SYSTEM_CLOCK, client, projection, place, stuck)
        )
        session.provider_slots.shared = ClusterSlots(slots)
        async with run_in_background(stuck.watch()):
            yield store
