"""The popup above the prompt: what the word at the cursor may become."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from nerve.commander.core.completion import Completion
from nerve.commander.core.harmless import gist, harmless

ROWS = 8
WIDEST = 40
OTHERS = 9
"""Lines for the prompt, the frame and the footer, and some of what is behind."""


class Popup(Static):
    """A few rows, one of them marked."""

    DEFAULT_CSS = """
    Popup { layer: popup; dock: bottom; height: auto; width: auto; max-width: 100%; display: none;
            background: $surface; border: round $primary; padding: 0 1; text-wrap: nowrap; }
    Popup:ansi { background: ansi_default; border: round ansi_blue; }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(id="popup", markup=False)
        self.auto_links = False
        self.items: Sequence[Completion] = ()
        self.at = 0
        self.moved = False
        """Whether somebody chose a row, rather than only typed."""

    @property
    def is_open(self) -> bool:
        return bool(self.items)

    @property
    def marked(self) -> Completion | None:
        return self.items[self.at] if self.items else None

    def offer(self, items: Sequence[Completion]) -> None:
        if not items and not self.items:
            return
        self.items, self.at, self.moved = items, 0, False
        self.display = bool(items)
        self.redraw()

    def move(self, by: int) -> None:
        if self.items:
            self.at, self.moved = (self.at + by) % len(self.items), True
            self.redraw()

    def redraw(self) -> None:
        if not self.items:
            return
        most = max(3, min(ROWS, self.app.size.height - OTHERS))
        first = max(0, min(self.at - most // 2, len(self.items) - most))
        rows = self.items[first : first + most]
        room = max(20, self.app.size.width - 8)
        names = min(WIDEST, room, max(cell_len(each.display or each.text) for each in rows))
        text = Text("\n", no_wrap=True).join(
            self.row(index, names, room) for index in range(first, first + len(rows))
        )
        if len(self.items) > most:
            text.append(f"\n{self.at + 1} of {len(self.items)}", "dim")
        self.update(text)

    def row(self, index: int, names: int, room: int) -> Text:
        item = self.items[index]
        here = index == self.at
        click = Style(meta={"@click": f"app.take({index})"})
        text = Text(set_cell_size(harmless(item.display or item.text), names), "bold cyan" if here else "")
        text.append("  ")
        text.append(gist(item.description), "cyan" if here else "dim")
        text.truncate(room, overflow="ellipsis", pad=here)
        text.stylize(click)
        return Text.assemble(("❯ " if here else "  ", "bold cyan"), text)
