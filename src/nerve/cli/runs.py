"""`nerve runs`: list the runs of the project."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from nerve.cli.completion import complete_state, complete_workflow
from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.outcome import PARKED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter, TextList
from nerve.core.suggest import did_you_mean_hint
from nerve.core.workflow.state import FINAL_STATE_VALUES, WorkflowState
from nerve.text import with_full_stop
from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.formatting import format_duration_between
from nerve.ui.gate_names import gate_display_name
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import RunResponse

RUN_STATES = [*(state.value for state in WorkflowState), PARKED]
MAX_LISTED_RUNS = 50
"""Runs in the list without --all."""
RUNS_PER_PAGE = 100
"""Runs per request."""
MAX_FIELD_CHARS = 2000
"""Longest reason of a hold in the list; longer results and errors are not read."""
SUMMARY_FIELDS = {
    *("run_id", "workflow", "state", "started_at", "ended_at", "label", "tags", "held", "waiting_for"),
    *("continued_as", "continued_from", "started_by", "started_via"),
}
SHORT_ID_CHARS = 13
"""Characters of a run id in the table; they encode the start time in milliseconds."""
TABLE_HEADINGS = ("run", "workflow", "state", "started", "took", "")
MAX_TABLE_WIDTH = 1000
"""Columns of a table that is not printed on a terminal."""
TERMINAL_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Environment variables by which rich takes any output for a terminal."""
NARROW_COLUMNS = 64
"""Terminal width below which only the first three columns are shown."""


def runs_command(
    *,
    state: Annotated[str | None, Parameter(completer=complete_state)] = None,
    workflow: Annotated[str | None, Parameter(completer=complete_workflow)] = None,
    label: str | None = None,
    tag: TextList = (),
    since: str | None = None,
    search: str | None = None,
    patch: str | None = None,
    all: Flag = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the newest runs of this project that match all options, newest last.

    Parameters
    ----------
    state
        Only runs in this state: waiting, parked, paused, held, completed, failed or cancelled.
    workflow
        Only runs of this workflow. A unique prefix of the name is enough.
    label
        Only runs with this label.
    tag
        Only runs with this tag: customer=42. Repeatable.
    since
        Only runs that started since then: a period such as 30s, 15m, 2h, 2d or 1w, or a date.
    search
        Only runs with this text in their workflow, label, tags or input. Searches the newest 5,000 runs
        that match the other options.
    patch
        Only open runs that may need the old branch of this patch.
    all
        List all runs instead of the 50 newest.
    """
    if state is not None and state not in RUN_STATES:
        message = with_full_stop(f"Unknown state '{state}'{did_you_mean_hint(state, RUN_STATES)}")
        raise UsageError(f"{message} States: {', '.join(RUN_STATES)}.")
    options = {
        "workflow": workflow,
        "label": label,
        "tag": list(tag),
        "since": since,
        "search": search,
        "patch": patch,
    }
    filters = {name: value for name, value in options.items() if value}

    async def do(context: CliContext) -> int:
        runs, more = await list_root_runs(context, state, None if all else MAX_LISTED_RUNS, **filters)
        summaries = [summarize_run(run) for run in reversed(runs)]
        empty = "No runs." if state or filters else "No runs yet. Start one with: nerve run TARGET"
        context.print_result(summaries, [] if summaries or common.quiet else empty)
        if summaries and not common.json:
            print_runs_table(summaries, context.out)
        if more:
            context.info(f"The {len(runs)} newest runs. To list all: nerve runs --all")
        return COMPLETED

    return run_with_api(common, do, read_only=True, only_lists=True)


async def list_root_runs(
    context: CliContext, state: str | None = None, limit: int | None = None, **filters: Any
) -> tuple[list[RunResponse], bool]:
    """Return the newest runs that are not children of others, newest first, and whether there may be more.

    `filters` are fields of the request for a list of runs.
    """
    runs: list[RunResponse] = []
    before, more = None, True
    while more and (limit is None or len(runs) < limit):
        page = await context.client.runs(
            state=stored_states(state), limit=RUNS_PER_PAGE, largest=MAX_FIELD_CHARS, before=before, **filters
        )
        for run in page.runs:
            shown_state = context.shown_state(run)
            if run.parent is None and state in (None, shown_state):
                runs.append(run.model_copy(update={"state": shown_state}))
        before, more = page.runs[-1].run_id if page.runs else None, page.more
    return runs[:limit], more or len(runs) > len(runs[:limit])


def stored_states(shown_state: str | None) -> list[str]:
    """Return the states in the store of runs that are shown in a state; empty for all states."""
    if shown_state is None or shown_state in FINAL_STATE_VALUES:
        return [] if shown_state is None else [shown_state]
    # A run that waits for a child run is stored as running, and shown in the state of the child.
    return ["running"] if shown_state in ("running", PARKED) else ["running", shown_state]


def summarize_run(run: RunResponse) -> dict[str, Any]:
    payload = run.model_dump(mode="json", include=SUMMARY_FIELDS)
    gates = [{"name": gate_display_name(gate), **gate.model_dump(mode="json")} for gate in run.gates]
    return {**payload, "gates": gates}


def print_runs_table(summaries: list[dict[str, Any]], out: TextIO) -> None:
    """Print the table: full width in a pipe, fewer columns in a narrow terminal."""
    rows = runs_table_rows(summaries)
    if not is_terminal_output(out) and (lines := plain_table_lines([TABLE_HEADINGS, *rows])):
        print("\n".join(lines), file=out)
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, highlight=False)
    if not console.is_terminal:
        console.width = MAX_TABLE_WIDTH
    headings = TABLE_HEADINGS if console.width >= NARROW_COLUMNS else TABLE_HEADINGS[:3]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column, heading in enumerate(headings):
        min_width = max(cell_len(row[column]) for row in rows) if heading in ("run", "state") else None
        table.add_column(heading, no_wrap=heading != "", overflow="ellipsis", min_width=min_width)
    for row, run in zip(rows, summaries, strict=True):
        _, state_style = state_symbol(run["state"])
        styles = (state_style if heading == "state" else "" for heading in headings)
        table.add_row(*map(Text, row, styles))
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()), file=out)


def is_terminal_output(out: TextIO) -> bool:
    """Whether rich may take an output for a terminal."""
    return out.isatty() or any(os.environ.get(name) for name in TERMINAL_VARIABLES)


def plain_table_lines(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table without styles; empty if the width of its text is not its length."""
    symbols = str.maketrans("", "", "".join(symbol for symbol, _ in STATE_SYMBOLS.values()))
    if not all(cell.translate(symbols).isascii() and cell.isprintable() for row in rows for cell in row):
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 2 * len(widths) > MAX_TABLE_WIDTH:
        return []
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def runs_table_rows(summaries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    prefixes = [run["run_id"][:SHORT_ID_CHARS] for run in summaries]
    prefix_counts = Counter(prefixes)
    rows: list[tuple[str, ...]] = []
    for run, prefix in zip(summaries, prefixes, strict=True):
        started = datetime.fromisoformat(run["started_at"])
        ended = datetime.fromisoformat(run["ended_at"]) if run["ended_at"] else None
        rows.append(
            (
                run["run_id"] if prefix_counts[prefix] > 1 else prefix,
                sanitize_text(run["workflow"]),
                f"{state_symbol(run['state'])[0]} {run['state']}",
                f"{started.astimezone():%Y-%m-%d %H:%M:%S}",
                format_duration_between(started, ended, started) if ended is not None else "",
                sanitize_text(waiting_reason(run)),
            )
        )
    return rows


def state_symbol(state: str) -> tuple[str, str]:
    """Return the symbol of a state and its style."""
    return STATE_SYMBOLS.get(state, ("⏸", "yellow"))


def waiting_reason(run: dict[str, Any]) -> str:
    """Return why a run is held, what it waits for, or the next run of its chain, as one line."""
    if hold := run["held"]:
        return " ".join(f"{hold['reason']}: {hold['message']}".split())
    return f"continued as {run['continued_as']}" if run["continued_as"] else run["waiting_for"] or ""
