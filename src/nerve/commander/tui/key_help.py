"""The key help screen, generated from the key table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from nerve.commander.core.command_table import PREFIX_HELP
from nerve.commander.tui.keymap import KEYS, SCOPE_TITLES, format_keys

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click

MAX_KEYS_PER_ACTION = 2
"""Maximum number of keys listed per action."""


class KeyHelpScreen(ModalScreen[None]):
    """A modal screen that lists all keys."""

    DEFAULT_CSS = """
    KeyHelpScreen { align: center middle; }
    KeyHelpScreen > VerticalScroll { width: 80; max-width: 100%; height: auto; max-height: 100%; padding: 0 1;
        border: round $primary; background: $surface; border-title-style: bold; scrollbar-size-vertical: 1; }
    KeyHelpScreen:ansi > VerticalScroll { background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1,question_mark,enter,ctrl+c", "dismiss", "close", priority=True)
    ]

    def __init__(self, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self.keymap = keymap

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys"
            box.border_subtitle = "Esc closes · /help lists the commands"
            yield Static(render_key_table(self.keymap))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    async def on_click(self, event: Click) -> None:
        if event.widget is self:
            self.dismiss()


def render_key_table(keymap: Mapping[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(Text("What you type", "bold"), "")
    for syntax, description in PREFIX_HELP:
        grid.add_row(Text(syntax, "cyan"), Text(description))
    for scope, title in SCOPE_TITLES.items():
        grid.add_row("", "")
        grid.add_row(Text(title, "bold"), "")
        for key in KEYS:
            if key.scope == scope:
                grid.add_row(
                    Text(format_keys(keymap.get(key.id) or key.keys, MAX_KEYS_PER_ACTION), "cyan"),
                    Text(key.description),
                )
    return grid
