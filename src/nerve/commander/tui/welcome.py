"""The welcome text: the project and what the user can type."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nerve.commander.core.state import CommanderState
from nerve.ui.sanitize import sanitize_text

MAX_WELCOME_WORKFLOWS = 6


def render_welcome(state: CommanderState) -> RenderableType:
    title = Text.assemble(("nerve", "bold"), ("  ", ""), (sanitize_text(state.project), "dim"))
    rows: list[tuple[str, str]] = [
        (f"%{workflow.id}", workflow.description.split("\n")[0] or "a workflow")
        for workflow in state.workflows[:MAX_WELCOME_WORKFLOWS]
    ]
    if len(state.workflows) > MAX_WELCOME_WORKFLOWS:
        rows.append(("/workflows", f"{len(state.workflows) - MAX_WELCOME_WORKFLOWS} more"))
    if state.is_connected and not rows:
        rows.append(("/import FILE", "define your first workflow from a file"))
    rows += [("", ""), ("/", "commands"), ("@", "nodes, and files as @./path"), ("?", "keys")]
    grid = Table.grid(expand=True, padding=(0, 3))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(style="dim", ratio=1, no_wrap=True, overflow="ellipsis")
    for name, description in rows:
        grid.add_row(sanitize_text(name), sanitize_text(description))
    return Padding(Group(title, Text(), grid), (1, 2))
