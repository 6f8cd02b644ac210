"""`nerve runs`: the runs of the project's store."""

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
from nerve.api.telling import gate_told as told_by_api
from nerve.api.telling import whole_name
from nerve.cli.answers import name_of
from nerve.cli.common import Common, refused
from nerve.cli.completion import WorkflowName, complete_state
from nerve.cli.flags import Flag
from nerve.cli.outcome import PARKED
from nerve.cli.project import plain, store_of
from nerve.cli.usage import UsageError, stopped
from nerve.client import server_of
from nerve.commander.core.harmless import harmless, in_json
from nerve.commander.core.lines import SYMBOLS
from nerve.core.session import Session
from nerve.core.suggest import suggest
from nerve.core.workflow import GateInfo, WorkflowState
from nerve.engine.local import UNREADABLE
from nerve.store.port import RunRow

STATES = [*(state.value for state in WorkflowState), PARKED]
SHORT = 13
"""Characters of an id that are shown: the millisecond of the start."""
HEADINGS = ("run", "workflow", "state", "started", "took", "")
NARROW = 64
"""Columns of a terminal that has no room for more than the first three."""


def runs(
    *,
    state: Annotated[str | None, Parameter(completer=complete_state)] = None,
    workflow: WorkflowName | None = None,
    json: Flag = False,
    quiet: Flag = False,
    store: Path | None = None,
) -> int:
    """List the runs of this project, the newest last.

    Parameters
    ----------
    state
        Only those in this state: waiting, parked, paused, held, completed, failed or cancelled.
    workflow
        Only those of this workflow, of whose name the beginning will do.
    json
        Print them as a JSON list.
    quiet
        Print nothing where there are none.
    store
        The file of the store, instead of .nerve/nerve.db.
    """
    if state is not None and state not in STATES:
        close = stopped(f"there is no state '{state}'{suggest(state, STATES)}")
        raise UsageError(f"{close} States: {', '.join(STATES)}.")
    try:
        found = [run for run in all_of(store, workflow) if state in (None, run["state"])]
    except ApiError as error:
        return refused(error, Common(json=json))
    if json:
        print(in_json(found))
    elif found:
        show(found)
    elif not quiet:
        print("No runs." if state or workflow else "No runs yet. Start one with: nerve run TARGET")
    return 0


def all_of(store: Path | None, workflow: str | None) -> list[dict[str, Any]]:
    """The runs that the server tells of, or else those of the file."""
    if store is None and server_of(Path()) is not None:
        from nerve.cli.served import listed as listed_by_server

        return asyncio.run(listed_by_server(workflow))
    file = store_of() if store is None else plain(store)
    return asyncio.run(listed(file, workflow)) if file.is_file() else []


async def listed(file: Path, workflow: str | None) -> list[dict[str, Any]]:
    """What is told of every run; nothing is recovered by looking."""
    async with Session(store=file) as session:
        engine = session.engine
        rows = engine.store.runs(session=session.name)
        told = {row.run: told_of(row, engine.gates(row) if row.ended is None else {}) for row in rows}
        for run_id, why in engine.unreadable.items():
            told[run_id] |= {"state": "held", "held": {"reason": UNREADABLE, "message": why}}
    for row in reversed(rows):
        if row.parent in told and told[row.run]["state"] in ("waiting", "held"):
            parent = told[row.parent]
            parent["state"] = told[row.run]["state"] if parent["state"] == PARKED else parent["state"]
            parent["gates"] += [{**gate, "run_id": row.parent} for gate in told[row.run]["gates"]]
    if workflow is not None:
        workflow = whole_name(workflow, [row.workflow for row in rows]) or workflow
    return [told[row.run] for row in rows if row.parent is None and workflow in (None, row.workflow)]


def told_of(row: RunRow, gates: dict[str, GateInfo]) -> dict[str, Any]:
    return {
        "run_id": row.run,
        "workflow": row.workflow,
        "state": PARKED if row.state == "running" else row.state,
        "started_at": datetime.fromtimestamp(row.started, UTC).isoformat(),
        "ended_at": datetime.fromtimestamp(row.ended, UTC).isoformat() if row.ended else None,
        "label": row.label,
        "held": None,
        "gates": [gate_told(row, gate) for gate in gates.values()],
    }


def gate_told(row: RunRow, gate: GateInfo) -> dict[str, Any]:
    """An open gate, as a server tells it."""
    return {"name": name_of(gate), **told_by_api(row.run, row.workflow, gate).model_dump(mode="json")}


def show(found: list[dict[str, Any]]) -> None:
    """The table; in a pipe it is as wide as it must be, and a narrow terminal is shown less."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    headings = HEADINGS if console.width >= NARROW else HEADINGS[:3]
    rows = [row[: len(headings)] for row in rows_of(found)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column, heading in enumerate(headings):
        whole = max(cell_len(str(row[column])) for row in rows) if heading in ("run", "state") else None
        table.add_column(heading, no_wrap=heading != "", overflow="ellipsis", min_width=whole)
    for row in rows:
        table.add_row(*row)
    with console.capture() as drawn:
        console.print(table)
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def rows_of(found: list[dict[str, Any]]) -> Iterator[tuple[str | Text, ...]]:
    short = [run["run_id"][:SHORT] for run in found]
    for run, prefix in zip(found, short, strict=True):
        symbol, style = SYMBOLS.get(run["state"], ("⏸", "yellow"))
        started = datetime.fromisoformat(run["started_at"])
        yield (
            run["run_id"] if short.count(prefix) > 1 else prefix,
            Text(harmless(run["workflow"])),
            Text(f"{symbol} {run['state']}", style),
            f"{started.astimezone():%Y-%m-%d %H:%M:%S}",
            took(started, run["ended_at"]),
            Text(harmless(asked(run))),
        )


def asked(run: dict[str, Any]) -> str:
    """Why a run is held, or what it waits for, in one line."""
    if held := run["held"]:
        return " ".join(f"{held['reason']}: {held['message']}".split())
    return " ".join("; ".join(f"{gate['name']}: {gate['prompt']}" for gate in run["gates"]).split())


def took(started: datetime, ended: str | None) -> str:
    if ended is None:
        return ""
    seconds = (datetime.fromisoformat(ended) - started).total_seconds()
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds // 60)}m{int(seconds % 60):02}s"
