"""`nerve rebase`: continue runs of a Temporal cluster from their journals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nerve.cli.completion import RunArgument
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.move import SESSION_NAME, find_cluster, translated_errors
from nerve.cli.parameters import DEFAULT_REPORT, ReportOptions
from nerve.cli.reports import print_report
from nerve.cli.trust import require_trust
from nerve.ui.formatting import count_noun

if TYPE_CHECKING:
    from nerve.project.engine_url import TemporalAddress
    from nerve.store.port import RunRow


def rebase_command(
    *runs: RunArgument,
    store: str | None = None,
    engine: str | None = None,
    options: ReportOptions = DEFAULT_REPORT,
) -> int:
    """Continue runs of a Temporal cluster from their journals, with the code of the current workers.

    For runs that are stuck: the code of the workers cannot continue their histories. Their workflows are
    terminated and begin again with the same ids. Completed steps are not repeated. A step that is running
    runs again, or is in doubt if it has effect "once". If the command is interrupted, repeat it.

    Parameters
    ----------
    store
        The URL of the database of the cluster. Default: NERVE_STORE.
    engine
        The URL of the cluster, temporal://HOST:7233/NAMESPACE. Default: NERVE_ENGINE.
    """
    if not runs:
        raise UsageError("Name the runs to continue. See the stuck ones: nerve doctor")
    address, url = find_cluster(engine, store)
    require_trust(has_url=True)
    with translated_errors():
        rebased = asyncio.run(rebase(runs, address, url))
    data = {"rebased": [{"run_id": row.run, "workflow": row.workflow} for row in rebased]}
    print_report(options, data, f"Continued {count_noun(len(rebased), 'run')} from the journal.")
    return COMPLETED


async def rebase(names: Iterable[str], engine: TemporalAddress, store_url: str) -> list[RunRow]:
    """Let the named runs begin again from their journals; return the runs that no other run called."""
    from nerve.api.lookup import find_stored_run
    from nerve.session.moved_runs import open_projected_runs, rebase_run

    async with open_projected_runs(engine, store_url, SESSION_NAME) as runs:
        rows = [find_stored_run(runs.store, SESSION_NAME, name) for name in names]
        return [await rebase_run(runs, row) for row in rows]
