"""Rendering of a run with rich: its tree, its gates and its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import ROOT_SYMBOLS
from nerve.ui.formatting import format_elapsed, format_usage
from nerve.ui.gate_names import gate_preview
from nerve.ui.json_forms import form_field_lines
from nerve.ui.progress_tree import ProgressTree, TreeRow
from nerve.ui.sanitize import sanitize_line, sanitize_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

MAX_TREE_ROWS = 40
"""Maximum rows; only the last are shown."""
NOTE_COLUMN = 29
"""Column where the notes start."""
MAX_PANEL_WIDTH = 100


def render_tree_panel(tree: ProgressTree, width: int = MAX_PANEL_WIDTH, now: datetime | None = None) -> Panel:
    title = f"Workflow Progress ({tree.root.run_id[:13]})"
    return render_progress_panel(render_tree_grid(tree, now), width, title)


def render_progress_panel(
    body: RenderableType, width: int | None = None, title: str = "Workflow Progress"
) -> Panel:
    """Render the frame of a tree; None as the width fills the terminal."""
    return Panel(body, title=title, border_style="blue", width=width and min(width, MAX_PANEL_WIDTH))


def render_tree_grid(tree: ProgressTree, now: datetime | None = None) -> Table:
    """Render the tree without a frame, each row with its elapsed time."""
    now, view = now or datetime.now(UTC), tree.root.view
    grid = create_row_grid()
    elapsed = format_elapsed(view.started_at, view.ended_at, now)
    grid.add_row(render_root(view.workflow_id, view.state), Text(elapsed, "dim"))
    add_rows(grid, list(tree.rows(now)), MAX_TREE_ROWS, "   … {} more above")
    if used := format_usage(tree.usage):
        grid.add_row("", Text(used, "dim"))
    return grid


def create_row_grid(gap: int = 1) -> Table:
    """Return a grid for rows: a text that fills the width, and a time at the end of the line."""
    grid = Table.grid(expand=True, padding=(0, gap))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    return grid


def render_root(workflow: str, state: str) -> Text:
    symbol, style = ROOT_SYMBOLS.get(state, ("●", "yellow"))
    return Text(f"{symbol} {sanitize_text(workflow)}", f"bold {style}")


def add_rows(grid: Table, rows: list[TreeRow], max_rows: int | None, more_text: str) -> None:
    """Add the last rows to a grid, with the number of those above; None shows all."""
    hidden_count = max(0, len(rows) - max_rows) if max_rows is not None else 0
    if hidden_count:
        grid.add_row(Text(more_text.format(hidden_count), "dim"), "")
    for row in rows[hidden_count:]:
        grid.add_row(RowText(row), Text(row.time, "dim"))


@dataclass(frozen=True, slots=True)
class RowText:
    """The name and the note of a row; of a growing note that is too long, the end is shown."""

    row: TreeRow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        row = self.row
        label = row.label.ljust(NOTE_COLUMN - len(row.guide))
        note = row.note
        if row.is_growing:
            note = end_of_text(note, options.max_width - cell_len(row.guide) - cell_len(label) - 1)
        yield Text.assemble((row.guide, "dim"), (label, row.style), (f" {note}", row.note_style))


def end_of_text(text: str, width: int) -> str:
    """Return a text, or as much of its end as fits into a number of cells."""
    if cell_len(text) <= width:
        return text
    end = text[max(0, len(text) - max(0, width)) :]
    while end and cell_len(end) > width - 1:
        end = end[1:]
    return f"…{end}"


def render_gate_panel(
    gate: Mapping[str, Any], name: str = "", numbered: bool = True, hint: str = "", more: Text | None = None
) -> Panel:
    """Render a gate with its question, choices or options, and form fields."""
    answers = list(gate.get("choices") or gate.get("options") or [])
    prompt, line, rest = sanitize_text(str(gate.get("prompt") or "")).partition("\n")
    text = Text(prompt, "bold").append(line + rest, "none")
    if note := gate.get("note"):
        text.append(f"\n{sanitize_text(str(note))}", "dim")
    if preview := gate_preview(gate.get("input_preview")):
        text.append(f"\n\n{sanitize_text(preview)}", "none")
    if more is not None:
        text = text.append("\n\n").append(more)
    append_section(text, "Fields:", form_field_lines(gate.get("form") or {}))
    marks = range(1, len(answers) + 1) if numbered else "•" * len(answers)
    answer_lines = [
        f"{mark} {sanitize_text(str(answer))}" for mark, answer in zip(marks, answers, strict=True)
    ]
    append_section(text, "Options:", answer_lines)
    if hint:
        text.append(f"\n\n{hint}", "dim")
    title = "⏸ Waiting for Input" + (f": {sanitize_line(name)}" if name else "")
    return Panel(text, title=Text(title, "bold yellow"), border_style="yellow", expand=False)


def append_section(text: Text, title: str, lines: list[str]) -> None:
    """Append indented lines under a title; nothing without lines."""
    if lines:
        text.append("".join([f"\n\n{title}", *(f"\n  {line}" for line in lines)]), "none")
