"""What is shown before there is anything to show: where one is, and what can be typed."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nerve.commander.core.desk import Desk
from nerve.commander.core.harmless import harmless

MOST = 6


def welcome(desk: Desk) -> RenderableType:
    title = Text.assemble(("nerve", "bold"), ("  ", ""), (harmless(desk.project), "dim"))
    rows: list[tuple[str, str]] = [
        (f"%{flow.id}", flow.description.split("\n")[0] or "a workflow") for flow in desk.workflows[:MOST]
    ]
    if len(desk.workflows) > MOST:
        rows.append(("/workflows", f"{len(desk.workflows) - MOST} more"))
    if desk.connected and not rows:
        rows.append(("/import FILE", "define your first workflow from a file"))
    rows += [("", ""), ("/", "commands"), ("@", "nodes, and files as @./path"), ("?", "keys")]
    grid = Table.grid(expand=True, padding=(0, 3))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(style="dim", ratio=1, no_wrap=True, overflow="ellipsis")
    for name, about in rows:
        grid.add_row(harmless(name), harmless(about))
    return Padding(Group(title, Text(), grid), (1, 2))
