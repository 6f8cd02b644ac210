"""The timeline of a run as rows of HTML: which of them are shown, their addresses, and their bars."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.lazy_dataclass import dataclass
from nerve.text import take_first_line
from nerve.ui.formatting import format_duration_between
from nerve.ui.timeline import WHOLE_RUN, TimelineBar, TimelineLayout, TimelineRow, TimelineRows, TimeSpan
from nerve.web.rendering import quote_step_path

if TYPE_CHECKING:
    from nerve.web.site import Visit

SHOWN_ROWS, MAX_SHOWN_ROWS = 200, 2000
ROWS_AROUND_SELECTION = 20
MAX_BARS = 200
MAX_NOTE_CHARS = 160
MIN_BAR_PERCENT = 0.3
MAX_DEPTH = 9
"""The deepest indentation."""
ZOOMS = (1, 2, 4, 8)
MAX_SECONDS = 1e10
BAR_WORDS = {
    "control": "runs",
    "run": "runs",
    "gate": "waits for an answer",
    "timer": "waits for a timer",
    "signal": "waits for a signal",
    "message": "waits for a message",
    "queue": "waits in a queue",
    "child": "child run",
    "retry": "waits before the next attempt",
    "limit": "waits for a provider",
    "pause": "paused",
    "hold": "held",
    "down": "no process",
    "tool": "tool call",
    "group": "runs",
}


@dataclass(frozen=True, slots=True)
class TimelineQuery:
    """How a timeline is shown, as it is in its address."""

    zoom: int = 1
    rows: int = SHOWN_ROWS
    expanded: tuple[str, ...] = ()
    collapsed: tuple[str, ...] = ()
    """The child runs whose steps are not shown."""
    span: TimeSpan = WHOLE_RUN
    selected: str = ""
    """The full path of the step in the detail pane."""

    @classmethod
    def of_visit(cls, visit: Visit, selected: str = "") -> TimelineQuery:
        zoom, rows = visit.query.get("zoom", ""), visit.query.get("rows", "")
        shown = int(rows) if rows.isdecimal() and len(rows) < 6 else SHOWN_ROWS
        return cls(
            int(zoom) if zoom in map(str, ZOOMS) else 1,
            min(max(shown, SHOWN_ROWS), MAX_SHOWN_ROWS),
            tuple(visit.query_list("open")),
            tuple(visit.query_list("closed")),
            read_span(visit.query.get("from", ""), visit.query.get("to", "")),
            selected,
        )

    def address(self, **changes: Any) -> dict[str, Any]:
        """Return the query of the address, without what is usual."""
        values = {
            "zoom": self.zoom,
            "rows": self.rows,
            "open": list(self.expanded),
            "closed": list(self.collapsed),
            "from": format_seconds(self.span.start),
            "to": format_seconds(self.span.end),
        } | changes
        usual = {"zoom": 1, "rows": SHOWN_ROWS, "open": [], "closed": [], "from": "", "to": ""}
        return {name: value for name, value in values.items() if value != usual[name]}


def read_span(start: str, end: str) -> TimeSpan:
    """Return the part of the run that an address selects; the whole run if the address makes no sense."""
    try:
        first, last = float(start or 0), float(end) if end else None
    except ValueError:
        return WHOLE_RUN
    is_valid = 0 <= first < MAX_SECONDS and (last is None or first < last < MAX_SECONDS)
    return TimeSpan(first, last) if is_valid and (first or last is not None) else WHOLE_RUN


def format_seconds(seconds: float | None) -> str:
    """Return seconds as they are in an address; empty for the start and the end of the run."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") if seconds else ""


@dataclass(frozen=True, slots=True)
class BarView:
    classes: str
    x: str
    width: str
    title: str


@dataclass(frozen=True, slots=True)
class RowView:
    """A row; with `left_out`, the place of rows that are not shown."""

    dom_id: str
    name: str = ""
    kind: str = ""
    state: str = ""
    depth: int = 0
    address: str = ""
    is_step: bool = False
    """Whether the address opens the detail pane."""
    is_selected: bool = False
    note: str = ""
    time: str = ""
    since: str = ""
    """Since when it takes, if it is still open."""
    bars: tuple[BarView, ...] = ()
    child_address: str = ""
    toggle_address: str = ""
    """Shows or hides the steps of a child run."""
    is_collapsed: bool = False
    left_out: int = 0


def make_row_views(
    visit: Visit,
    run_id: str,
    layout: TimelineLayout,
    query: TimelineQuery,
    child_runs: Mapping[str, str],
) -> Iterator[RowView]:
    """Yield the rows that are shown: at most `query.rows`, with those around the selected step.

    `child_runs` are the ids of the child runs by the full path of their call.
    """
    now, shown_until = datetime.now(UTC), 0
    for number in find_shown_rows(layout.rows, query):
        if number > shown_until:
            yield make_gap(visit, run_id, query, shown_until, number - shown_until)
        yield make_row_view(visit, run_id, layout.rows[number], query, child_runs, now)
        shown_until = number + 1
    if shown_until < len(layout.rows):
        yield make_gap(visit, run_id, query, shown_until, len(layout.rows) - shown_until)


def find_shown_rows(rows: TimelineRows, query: TimelineQuery) -> list[int]:
    """Return the numbers of the first and the last rows, and of those around the selected one."""
    if len(rows) <= query.rows:
        return list(range(len(rows)))
    half = query.rows // 2
    shown = {*range(half), *range(len(rows) - half, len(rows))}
    selected = rows.find(query.selected)
    if selected is not None:
        first = max(0, selected - ROWS_AROUND_SELECTION)
        shown.update(range(first, min(len(rows), selected + ROWS_AROUND_SELECTION)))
    return sorted(shown)


def make_gap(visit: Visit, run_id: str, query: TimelineQuery, start: int, left_out: int) -> RowView:
    address = ""
    if query.rows < MAX_SHOWN_ROWS:
        more = query.address(rows=min(MAX_SHOWN_ROWS, query.rows + 4 * SHOWN_ROWS))
        address = visit.site.url(step_page(run_id, query.selected), more)
    return RowView(f"gap-{start}", address=address, left_out=left_out)


def step_page(run_id: str, full_path: str) -> str:
    """Return the path of the page of a step; without a step, of the run."""
    return f"/runs/{run_id}" + (f"/steps{quote_step_path(full_path)}" if full_path else "")


def make_row_view(
    visit: Visit,
    run_id: str,
    row: TimelineRow,
    query: TimelineQuery,
    child_runs: Mapping[str, str],
    now: datetime,
) -> RowView:
    started, ended = read_time(row.started), read_time(row.ended)
    full_path = "" if row.kind in ("run", "round") else row.id.partition("#")[0]
    address, is_step = visit.site.url(step_page(run_id, full_path), query.address()), bool(full_path)
    name = row.name
    if row.kind == "group":
        page = step_page(run_id, query.selected)
        address = visit.site.url(page, query.address(open=toggle(query.expanded, row.id)))
        is_step = False
        name = f"{row.name} × {row.count:,}"
    elif row.kind == "round":
        address = ""
    is_open = started is not None and ended is None and row.state in ("running", "waiting", "retrying")
    return RowView(
        make_dom_id(row.id),
        name,
        row.kind,
        row.state,
        min(row.depth, MAX_DEPTH),
        address,
        is_step,
        bool(query.selected) and row.id == query.selected,
        describe_row(row),
        format_row_duration(started, ended, now),
        started.isoformat(timespec="milliseconds") if is_open and started is not None else "",
        tuple(make_bar_view(row, bar, now) for bar in row.bars[:MAX_BARS]),
        visit.site.url(f"/runs/{child_runs[row.id]}") if row.id in child_runs else "",
        find_toggle_address(visit, run_id, row, query),
        row.is_collapsed,
    )


def find_toggle_address(visit: Visit, run_id: str, row: TimelineRow, query: TimelineQuery) -> str:
    """Return the address that shows or hides the steps of a child run; empty for another row."""
    if row.kind != "child" or not row.has_children:
        return ""
    closed = toggle(query.collapsed, row.id)
    return visit.site.url(step_page(run_id, query.selected), query.address(closed=closed))


def toggle(ids: tuple[str, ...], id: str) -> list[str]:
    """Return the ids without one of them, or with it if it is not there."""
    return [each for each in ids if each != id] if id in ids else [*ids, id]


def describe_row(row: TimelineRow) -> str:
    """Return the text beside the name of a row."""
    if row.kind == "group":
        return ", ".join(f"{count:,} {state}" for state, count in sorted(row.counts.items()))
    note = row.note.partition(f" {row.name} ")[2] if row.kind == "tool" else row.note
    return take_first_line(note)[:MAX_NOTE_CHARS]


def make_bar_view(row: TimelineRow, bar: TimelineBar, now: datetime) -> BarView:
    width = min(max(100 * bar.width, MIN_BAR_PERCENT), 100.0)
    x = min(100 * bar.x, 100 - width)
    time = format_row_duration(read_time(bar.started), read_time(bar.ended), now)
    attempt = f"attempt {bar.attempt}, " if row.attempts > 1 else ""
    title = f"{attempt}{BAR_WORDS[bar.kind]}, {bar.state}, {time}"
    if bar.label:
        title += f": {take_first_line(bar.label)[:MAX_NOTE_CHARS]}"
    classes = f"bar {bar.kind} {bar.state}" + (" wait" if bar.is_wait and bar.kind != "child" else "")
    return BarView(classes, f"{x:.3f}%", f"{width:.3f}%", title)


def format_row_duration(started: datetime | None, ended: datetime | None, now: datetime) -> str:
    """Format a duration; short ones, of which a timeline has many, in milliseconds."""
    if started is not None and ended is not None and (seconds := (ended - started).total_seconds()) < 0.1:
        return f"{1000 * max(0.0, seconds):.0f}ms"
    return format_duration_between(started, ended, now)


def read_time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def make_dom_id(row_id: str) -> str:
    """Return an id for an element, from an id with any characters."""
    return "row-" + hashlib.blake2b(row_id.encode(), digest_size=6).hexdigest()
