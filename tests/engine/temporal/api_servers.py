"""API servers and workers of one cluster in this process, as the tests use them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve import Session
from nerve.api import Api
from nerve.api.service import execute_operation
from nerve.api.shared_session import SharedSession
from nerve.engine.temporal.body_worker import run_body_worker
from nerve.engine.temporal.client import connect_client
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import host_queue, leaf_queue
from nerve.engine.temporal.payloads import make_data_converter
from nerve.project.engine_url import parse_engine_url
from nerve.session.temporal_api import use_cluster_engine
from nerve.store.memory import MemoryStore
from nerve.store.postgres_projection import PostgresProjection
from nerve.store.projected_store import ProjectedStore

if TYPE_CHECKING:
    from temporalio.client import Client

Register = Callable[[Session], None]


@asynccontextmanager
async def open_servers(
    temporal_url: str, store_url: str, project: Path, register: Register, count: int = 2
) -> AsyncIterator[list[Api]]:
    """The APIs of some servers, with a body worker and a leaf worker."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_workers(temporal_url, store_url, register, project=project))
        yield [
            await stack.enter_async_context(open_server(temporal_url, store_url, project, register))
            for _ in range(count)
        ]


@asynccontextmanager
async def open_server(
    temporal_url: str, store_url: str, project: Path, register: Register
) -> AsyncIterator[Api]:
    engine = parse_engine_url(temporal_url)
    shared = SharedSession(store_url, project, execute_operation, register, engine=engine)
    async with shared.open():
        yield Api(shared)


@asynccontextmanager
async def open_workers(
    temporal_url: str,
    store_url: str,
    register: Register,
    build_id: str | None = None,
    project: Path | None = None,
) -> AsyncIterator[None]:
    """A body worker and a leaf worker in this process."""
    async with (
        open_body_worker(temporal_url, store_url, register, build_id, project),
        open_leaf_worker(temporal_url, store_url, register, project),
    ):
        yield


@asynccontextmanager
async def open_body_worker(
    temporal_url: str,
    store_url: str,
    register: Register,
    build_id: str | None = None,
    project: Path | None = None,
    *,
    is_promoted: bool = False,
) -> AsyncIterator[None]:
    async with connect_worker(temporal_url, store_url, register, project) as worker:
        session, client, projection, _ = worker
        async with run_body_worker(
            client, session, MemoryStore, projection, build_id=build_id, is_promoted=is_promoted
        ):
            yield


@asynccontextmanager
async def open_leaf_worker(
    temporal_url: str,
    store_url: str,
    register: Register,
    project: Path | None = None,
    host: str | None = None,
) -> AsyncIterator[None]:
    async with connect_worker(temporal_url, store_url, register, project) as worker:
        session, client, projection, store = worker
        executor = LeafExecutor(session, client, projection, store, host)
        queues = [leaf_queue(session.name), *([] if host is None else [host_queue(session.name, host)])]
        async with LeafWorker(client, executor, queues).running():
            yield


@asynccontextmanager
async def connect_worker(
    temporal_url: str, store_url: str, register: Register, project: Path | None
) -> AsyncIterator[tuple[Session, Client, PostgresProjection, ProjectedStore]]:
    session = Session(project=project)
    register(session)
    address = parse_engine_url(temporal_url)
    with (
        closing(PostgresProjection(store_url, session.name, str(address))) as projection,
        closing(ProjectedStore(store_url, projection)) as store,
    ):
        client = await connect_client(address, make_data_converter(projection))
        use_cluster_engine(session, store, client, projection)
        yield session, client, projection, store


async def wait_for_end(api: Api, run_id: str) -> Any:
    """Return a run that has ended."""
    return await wait_for_run(api, run_id, lambda run: run.ended_at is not None)


async def wait_for_gate(api: Api, run_id: str) -> Any:
    """Return the first open gate of a run or of its child runs."""
    return (await wait_for_run(api, run_id, lambda run: run.gates)).gates[0]


async def wait_for_run(api: Api, run_id: str, is_met: Callable[[Any], object]) -> Any:
    deadline = time.monotonic() + 60
    while not is_met(run := await api.run(run=run_id)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run is {run}")
        await asyncio.sleep(0.05)
    return run
