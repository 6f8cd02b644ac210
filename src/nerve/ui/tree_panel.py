"""Rendering of the progress tree with rich."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nerve.core.run_view import NodeView
from nerve.ui.event_lines import ROOT_SYMBOLS, STATE_SYMBOLS
from nerve.ui.progress_tree import (
    ProgressTree,
    RunBranch,
    format_elapsed,
    format_step_name,
    format_tokens_and_cost,
    visible_nodes,
)
from nerve.ui.sanitize import markdown_first_line, sanitize_text

MAX_TREE_ROWS = 40
"""Maximum rows; only the last are shown."""
NOTE_COLUMN = 26
"""Column where the notes start."""
MAX_PANEL_WIDTH = 100


def render_tree_panel(tree: ProgressTree, width: int = MAX_PANEL_WIDTH, now: datetime | None = None) -> Panel:
    title = f"Workflow Progress ({tree.root.run_id[:13]})"
    return Panel(
        render_tree_grid(tree, now), title=title, border_style="blue", width=min(width, MAX_PANEL_WIDTH)
    )


def render_tree_grid(tree: ProgressTree, now: datetime | None = None, max_rows: int = MAX_TREE_ROWS) -> Table:
    """Render the tree without a frame, each row with its elapsed time."""
    now, root = now or datetime.now(UTC), tree.root
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    symbol, style = ROOT_SYMBOLS.get(root.view.state, ("●", "yellow"))
    elapsed = format_elapsed(root.view.started_at, root.view.ended_at, now)
    table.add_row(
        Text(f"{symbol} {sanitize_text(root.view.workflow_id)}", f"bold {style}"), Text(elapsed, "dim")
    )
    rows = list(tree_rows(tree, root, root.view.tree, "", now))
    if len(rows) > max_rows:
        table.add_row(Text(f"   … {len(rows) - max_rows} more above", "dim"), "")
    for row in rows[-max_rows:]:
        table.add_row(*row)
    if used := format_tokens_and_cost(tree.usage):
        table.add_row("", Text(used, "dim"))
    return table


def tree_rows(
    tree: ProgressTree, branch: RunBranch, nodes: list[NodeView], guide: str, now: datetime
) -> Iterator[tuple[Text, Text]]:
    shown_nodes = list(visible_nodes(branch, nodes))
    for node in shown_nodes:
        is_last = node is shown_nodes[-1]
        symbol, style = STATE_SYMBOLS.get(node.state, ("●", "yellow"))
        text = Text.assemble((f"{guide}{'└─' if is_last else '├─'} ", "dim"))
        text.append(
            f"{symbol} {sanitize_text(format_step_name(node))}".ljust(NOTE_COLUMN - len(guide)), style
        )
        text.append(" " + markdown_first_line(branch.notes.get(node.path, "")))
        yield text, Text(format_elapsed(node.started_at, node.ended_at, now), "dim")
        inner_guide = guide + ("   " if is_last else "│  ")
        yield from tree_rows(tree, branch, node.children, inner_guide, now)
        child_branch = tree.branches.get(branch.prefix + node.path)
        if child_branch is not None and child_branch is not branch:
            yield from tree_rows(tree, child_branch, child_branch.view.tree, inner_guide, now)
