"""`nerve runs`: list the runs of the project."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nerve.api import ApiError
from nerve.api.responses import complete_unique_name, gate_response
from nerve.cli.completion import WorkflowName, complete_state
from nerve.cli.context import CommonOptions, report_api_error
from nerve.cli.errors import UsageError, with_full_stop
from nerve.cli.gate_answers import gate_display_name
from nerve.cli.outcome import PARKED
from nerve.cli.parameters import Flag
from nerve.cli.targets import project_store_file, require_store_file
from nerve.client import find_server
from nerve.core.suggest import did_you_mean_hint
from nerve.core.workflow import GateInfo, WorkflowState
from nerve.engine.local_engine import UNREADABLE_REASON
from nerve.session import Session
from nerve.store.port import RunRow
from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.sanitize import dump_safe_json, sanitize_text

RUN_STATES = [*(state.value for state in WorkflowState), PARKED]
SHORT_ID_CHARS = 13
"""Characters of a run id in the table; they encode the start time in milliseconds."""
TABLE_HEADINGS = ("run", "workflow", "state", "started", "took", "")
NARROW_COLUMNS = 64
"""Terminal width below which only the first three columns are shown."""


def runs_command(
    *,
    state: Annotated[str | None, Parameter(completer=complete_state)] = None,
    workflow: WorkflowName | None = None,
    json: Flag = False,
    quiet: Flag = False,
    store: Path | None = None,
) -> int:
    """List the runs of this project, newest last.

    Parameters
    ----------
    state
        Only runs in this state: waiting, parked, paused, held, completed, failed or cancelled.
    workflow
        Only runs of this workflow. A unique prefix of the name is enough.
    json
        Print a JSON list.
    quiet
        Print nothing if no runs match.
    store
        The store file. Default: .nerve/nerve.db.
    """
    if state is not None and state not in RUN_STATES:
        message = with_full_stop(f"Unknown state '{state}'{did_you_mean_hint(state, RUN_STATES)}")
        raise UsageError(f"{message} States: {', '.join(RUN_STATES)}.")
    try:
        summaries = [run for run in fetch_run_summaries(store, workflow) if state in (None, run["state"])]
    except ApiError as error:
        return report_api_error(error, CommonOptions(json=json))
    if json:
        print(dump_safe_json(summaries))
    elif summaries:
        print_runs_table(summaries)
    elif not quiet:
        print("No runs." if state or workflow else "No runs yet. Start one with: nerve run TARGET")
    return 0


def fetch_run_summaries(store: Path | None, workflow: str | None) -> list[dict[str, Any]]:
    """Return run summaries from the server, or from the store file."""
    if store is None and find_server(Path()) is not None:
        from nerve.cli.remote_runs import list_server_runs

        return asyncio.run(list_server_runs(workflow))
    file = project_store_file() if store is None else require_store_file(store)
    return asyncio.run(read_stored_runs(file, workflow)) if file.is_file() else []


async def read_stored_runs(file: Path, workflow: str | None) -> list[dict[str, Any]]:
    """Return run summaries from a store file. Reading does not recover runs."""
    async with Session(store=file) as session:
        engine = session.engine
        rows = engine.store.runs(session=session.name)
        summaries = {
            row.run: summarize_run_row(row, engine.gates_of_run(row) if row.ended is None else {})
            for row in rows
        }
        for run_id, reason in engine.unreadable_runs.items():
            summaries[run_id] |= {"state": "held", "held": {"reason": UNREADABLE_REASON, "message": reason}}
    for row in reversed(rows):
        if row.parent in summaries and summaries[row.run]["state"] in ("waiting", "held"):
            parent = summaries[row.parent]
            parent["state"] = summaries[row.run]["state"] if parent["state"] == PARKED else parent["state"]
            parent["gates"] += [{**gate, "run_id": row.parent} for gate in summaries[row.run]["gates"]]
    if workflow is not None:
        workflow = complete_unique_name(workflow, [row.workflow for row in rows]) or workflow
    return [summaries[row.run] for row in rows if row.parent is None and workflow in (None, row.workflow)]


def summarize_run_row(row: RunRow, gates: dict[str, GateInfo]) -> dict[str, Any]:
    return {
        "run_id": row.run,
        "workflow": row.workflow,
        "state": PARKED if row.state == "running" else row.state,
        "started_at": datetime.fromtimestamp(row.started, UTC).isoformat(),
        "ended_at": datetime.fromtimestamp(row.ended, UTC).isoformat() if row.ended else None,
        "label": row.label,
        "held": None,
        "gates": [summarize_run_gate(row, gate) for gate in gates.values()],
    }


def summarize_run_gate(row: RunRow, gate: GateInfo) -> dict[str, Any]:
    """Return an open gate in the form of the API."""
    return {
        "name": gate_display_name(gate),
        **gate_response(row.run, row.workflow, gate).model_dump(mode="json"),
    }


def print_runs_table(summaries: list[dict[str, Any]]) -> None:
    """Print the table: full width in a pipe, fewer columns in a narrow terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    headings = TABLE_HEADINGS if console.width >= NARROW_COLUMNS else TABLE_HEADINGS[:3]
    rows = [row[: len(headings)] for row in runs_table_rows(summaries)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column, heading in enumerate(headings):
        min_width = max(cell_len(str(row[column])) for row in rows) if heading in ("run", "state") else None
        table.add_column(heading, no_wrap=heading != "", overflow="ellipsis", min_width=min_width)
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def runs_table_rows(summaries: list[dict[str, Any]]) -> Iterator[tuple[str | Text, ...]]:
    prefixes = [run["run_id"][:SHORT_ID_CHARS] for run in summaries]
    for run, prefix in zip(summaries, prefixes, strict=True):
        symbol, style = STATE_SYMBOLS.get(run["state"], ("⏸", "yellow"))
        started = datetime.fromisoformat(run["started_at"])
        yield (
            run["run_id"] if prefixes.count(prefix) > 1 else prefix,
            Text(sanitize_text(run["workflow"])),
            Text(f"{symbol} {run['state']}", style),
            f"{started.astimezone():%Y-%m-%d %H:%M:%S}",
            format_run_duration(started, run["ended_at"]),
            Text(sanitize_text(waiting_reason(run))),
        )


def waiting_reason(run: dict[str, Any]) -> str:
    """Return why a run is held, or which gates it waits for, as one line."""
    if hold := run["held"]:
        return " ".join(f"{hold['reason']}: {hold['message']}".split())
    return " ".join("; ".join(f"{gate['name']}: {gate['prompt']}" for gate in run["gates"]).split())


def format_run_duration(started: datetime, ended: str | None) -> str:
    if ended is None:
        return ""
    seconds = (datetime.fromisoformat(ended) - started).total_seconds()
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds // 60)}m{int(seconds % 60):02}s"
