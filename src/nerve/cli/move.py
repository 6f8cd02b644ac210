"""`nerve move`: move open runs from the local engine to a Temporal cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nerve.api.errors import ApiError, to_api_error
from nerve.cli.completion import RunArgument
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import (
    DEFAULT_REPORT,
    Flag,
    Parameter,
    ReportOptions,
    find_store_url,
    project_store_file,
    require_store_file,
)
from nerve.cli.reports import print_report
from nerve.cli.serve import find_engine_address
from nerve.cli.targets import Project
from nerve.cli.trust import require_trust
from nerve.errors import EngineUnavailable, NerveError
from nerve.project.engine_url import ENGINE_VARIABLE
from nerve.project.store_url import is_store_url
from nerve.ui.formatting import count_noun

SESSION_NAME = "default"
"""The session of a project."""

if TYPE_CHECKING:
    from nerve.project.engine_url import TemporalAddress
    from nerve.store.port import RunRow, Store


def move_command(
    *runs: RunArgument,
    all: Flag = False,
    source: Annotated[str | None, Parameter(name="--from", show_default=False)] = None,
    store: str | None = None,
    engine: str | None = None,
    host_name: str = "",
    options: ReportOptions = DEFAULT_REPORT,
) -> int:
    """Move open runs from the local engine to a Temporal cluster, which continues them with the same ids.

    Stop the server first. Each run takes its child runs with it. In its old store it ends as cancelled, and
    its last event says where it went. If the command is interrupted, repeat it.

    Parameters
    ----------
    all
        Move all open runs.
    source
        The store of the local engine: a file, or the URL of a database. Default: .nerve/nerve.db. If it is
        the database of the cluster, --all lets the cluster execute all runs of the project.
    store
        The URL of the database of the cluster. Default: NERVE_STORE.
    engine
        The URL of the cluster, temporal://HOST:7233/NAMESPACE. Default: NERVE_ENGINE.
    host_name
        The name of this machine in the cluster, on which runs with workspaces stay. Default: its host name.
    """
    if bool(runs) == all:
        raise UsageError("Name the runs to move, or write --all.")
    address, url = find_cluster(engine, store)
    location = find_source(source)
    require_trust(
        Path(location) if source is not None and isinstance(location, Path) else None,
        has_url=not isinstance(location, Path),
    )
    with translated_errors():
        moved = asyncio.run(move(location, runs, address, url, host_name))
    data = {"moved": [{"run_id": row.run, "workflow": row.workflow} for row in moved]}
    print_report(options, data, f"Moved {count_noun(len(moved), 'run')} to {address}.")
    return COMPLETED


def find_cluster(engine: str | None, store: str | None) -> tuple[TemporalAddress, str]:
    """Return the address of the cluster and the URL of its database, from options or the environment."""
    url = find_store_url(store)
    if url is None:
        raise UsageError("The runs need a database: --store postgresql://USER@HOST/DATABASE, or NERVE_STORE.")
    address = find_engine_address(engine, url)
    if address is None:
        raise UsageError(
            f"The engine is missing: --engine temporal://HOST:7233/NAMESPACE, or {ENGINE_VARIABLE}."
        )
    return address, url


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of the engine and the store as those of a command."""
    try:
        yield
    except EngineUnavailable as error:
        raise ApiError("refused", f"{error.problem}.", f"{error.fix}.") from None
    except (NerveError, ValueError) as error:
        raise to_api_error(error) from error


def find_source(option: str | None) -> str | Path:
    """Return the URL or the file of the store that runs are moved from."""
    if option is not None and is_store_url(option):
        found = find_store_url(option)
        assert found is not None
        return found
    file = project_store_file() if option is None else require_store_file(Path(option))
    if not file.is_file():
        raise UsageError(f"No store to move runs from: {file} does not exist. Name it with --from.")
    return file


async def move(
    source: str | Path, names: Iterable[str], engine: TemporalAddress, store_url: str, host_name: str = ""
) -> list[RunRow]:
    """Move the named runs, or all; return those that were moved, as they were."""
    from nerve.api.lookup import find_stored_run
    from nerve.session.moved_runs import FilesOfRuns, is_same_database, move_runs

    if names and is_same_database(source, store_url):
        raise UsageError("In one database, all runs move together. Write --all.")

    def select(store: Store) -> list[RunRow] | None:
        return [find_stored_run(store, SESSION_NAME, name) for name in names] or None

    files = FilesOfRuns(Path(), host_name, Project().config.place == "shared")
    return [row async for row in move_runs(source, select, engine, store_url, SESSION_NAME, files)]
