"""The progress tree as rich draws it, on every screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nerve.commander.core.harmless import gist, harmless
from nerve.commander.core.lines import ROOTS, SYMBOLS
from nerve.commander.core.tree import Branch, Tree, name_of, spent, time, visible
from nerve.core.view import NodeView

MOST = 40
"""Lines that are shown; of more, the last."""
NAMES = 26
"""Where the notes begin."""
WIDEST = 100


def panel(tree: Tree, width: int = WIDEST, now: datetime | None = None) -> Panel:
    title = f"Workflow Progress ({tree.root.run_id[:13]})"
    return Panel(grid(tree, now), title=title, border_style="blue", width=min(width, WIDEST))


def grid(tree: Tree, now: datetime | None = None, most: int = MOST) -> Table:
    """The tree without a frame: each line with its time."""
    now, root = now or datetime.now(UTC), tree.root
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    symbol, style = ROOTS.get(root.view.state, ("●", "yellow"))
    took = time(root.view.started_at, root.view.ended_at, now)
    grid.add_row(Text(f"{symbol} {harmless(root.view.workflow_id)}", f"bold {style}"), Text(took, "dim"))
    rows = list(rows_of(tree, root, root.view.tree, "", now))
    if len(rows) > most:
        grid.add_row(Text(f"   … {len(rows) - most} more above", "dim"), "")
    for row in rows[-most:]:
        grid.add_row(*row)
    if used := spent(tree.usage):
        grid.add_row("", Text(used, "dim"))
    return grid


def rows_of(
    tree: Tree, branch: Branch, nodes: list[NodeView], guide: str, now: datetime
) -> Iterator[tuple[Text, Text]]:
    shown = list(visible(branch, nodes))
    for node in shown:
        last = node is shown[-1]
        symbol, style = SYMBOLS.get(node.state, ("●", "yellow"))
        text = Text.assemble((f"{guide}{'└─' if last else '├─'} ", "dim"))
        text.append(f"{symbol} {harmless(name_of(node))}".ljust(NAMES - len(guide)), style)
        text.append(" " + gist(branch.notes.get(node.path, "")))
        yield text, Text(time(node.started_at, node.ended_at, now), "dim")
        inner = guide + ("   " if last else "│  ")
        yield from rows_of(tree, branch, node.children, inner, now)
        called = tree.branches.get(branch.prefix + node.path)
        if called is not None and called is not branch:
            yield from rows_of(tree, called, called.view.tree, inner, now)
