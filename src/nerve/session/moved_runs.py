"""Runs that begin in a Temporal cluster with a journal: moved from the local engine, or rebased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.core.clock import SYSTEM_CLOCK
from nerve.errors import EngineUnavailable
from nerve.lazy_dataclass import dataclass
from nerve.project.store_url import is_store_url
from nerve.session.project_store import open_store
from nerve.workspaces.records import WorkspaceFiles

if TYPE_CHECKING:
    from nerve.engine.temporal.projected_runs import ProjectedRuns
    from nerve.project.engine_url import TemporalAddress
    from nerve.store.port import RunRow, Store


@dataclass(frozen=True, slots=True)
class FilesOfRuns:
    """Where the workspaces of runs are that the local engine has begun."""

    project: Path = Path()
    host: str = ""
    """The name of this machine in the cluster; empty for its host name."""
    is_shared: bool = False
    """Whether all machines have the files."""

    def find_kept(self, runs: Iterable[str]) -> dict[str, Any]:
        """Return the workspaces of runs and their host, as fields of the input of a workflow."""
        from nerve.engine.temporal.leaf_worker import host_name

        records = WorkspaceFiles(self.project)
        names = [[run, record.name] for run in runs for record in records.records(run)]
        if not names:
            return {}
        return {"workspaces": names, "host": None if self.is_shared else self.host or host_name()}


SelectRuns = Callable[["Store"], Iterable["RunRow"] | None]
"""Returns the runs of a store to move; None for all open ones."""


async def move_runs(
    source: str | Path,
    select: SelectRuns,
    engine: TemporalAddress,
    store_url: str,
    session: str = "default",
    files: FilesOfRuns | None = None,
) -> AsyncIterator[RunRow]:
    """Move runs from a store, a file or a URL, and yield each run that was moved, as it was.

    `files` are those that the runs may have here; by default, in this folder and on this machine. If the
    source is the database that the engine uses, all runs are moved. StoreInUse says that a process
    executes the runs; it has to end first. What was moved stays moved if anything fails; the next call
    continues.
    """
    files = files or FilesOfRuns()
    if is_same_database(source, store_url):
        async for row in assign_runs(engine, store_url, session, files):
            yield row
        return
    from nerve.engine.temporal.moved_runs import MoveTarget, RunMover
    from nerve.store.postgres_connection import parse_address

    with closing(open_store(source, session=session)) as runs:
        rows = select(runs)
        async with open_projected_runs(engine, store_url, session) as projected:
            target = MoveTarget(str(engine), str(parse_address(store_url)))
            mover = RunMover(runs, session, SYSTEM_CLOCK, target, projected, files.find_kept)
            for row in list(mover.find_all() if rows is None else rows):
                if (moved := await mover.move(row)) is not None:
                    yield moved


async def assign_runs(
    engine: TemporalAddress, store_url: str, session: str, files: FilesOfRuns
) -> AsyncIterator[RunRow]:
    """Let a cluster execute the runs of a session in a database, with the open ones of the local engine."""
    from nerve.engine.temporal.carried_runs import carry_family, check_length
    from nerve.engine.temporal.projected_runs import find_open_families
    from nerve.store.postgres import PostgresStore

    with closing(PostgresStore(store_url, None)) as store:
        families: list[tuple[RunRow, list[str]]] = []
        for row in find_open_families(store, session):
            # Before the assignment, which cannot be taken back.
            check_length(row.run, journal := carry_family(store, row.run))
            families.append((row, [part.run for part in journal]))
    async with open_projected_runs(engine, store_url, session, with_runs=True) as projected:
        for row, runs in families:
            if await projected.start(row.run, **files.find_kept(runs)):
                yield row


async def rebase_run(runs: ProjectedRuns, row: RunRow) -> RunRow:
    """Let a run begin again from its journal; return the run that no other run called."""
    from nerve.engine.temporal.rebased_runs import RunRebase

    return await RunRebase(runs).rebase(row)


@asynccontextmanager
async def open_projected_runs(
    engine: TemporalAddress, store_url: str, session: str, *, with_runs: bool = False
) -> AsyncIterator[ProjectedRuns]:
    """Connect to a cluster and its database; the runs that are open there are assigned `with_runs`."""
    try:
        from nerve.engine.temporal.client import connect_client
        from nerve.engine.temporal.payloads import make_data_converter
        from nerve.engine.temporal.projected_runs import ProjectedRuns
        from nerve.store.postgres import PostgresStore
        from nerve.store.postgres_projection import PostgresProjection, assign_session
    except ImportError as error:
        fix = "Install it: pip install '.[temporal]' in the clone of Nerve"
        raise EngineUnavailable(f"Runs in Temporal need the package temporalio: {error}", fix) from None
    with ExitStack() as stack:
        if with_runs:
            # The address is checked first: the assignment cannot be taken back.
            await connect_client(engine)
            await asyncio.to_thread(assign_session, store_url, session, str(engine), with_runs=True)
        projection = stack.enter_context(closing(PostgresProjection(store_url, session, str(engine))))
        client = await connect_client(engine, make_data_converter(projection))
        store = stack.enter_context(closing(PostgresStore(store_url, None)))
        yield ProjectedRuns(client, projection, store, session)


def is_same_database(source: str | Path, store_url: str) -> bool:
    """Whether two locations are the same schema of the same database."""
    if not (isinstance(source, str) and is_store_url(source)):
        return False
    from nerve.store.postgres_connection import parse_address

    return parse_address(source) == parse_address(store_url)
