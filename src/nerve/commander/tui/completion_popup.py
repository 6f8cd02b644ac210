"""The completion popup above the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from nerve.commander.core.completion import Completion
from nerve.ui.sanitize import markdown_first_line, sanitize_text

MAX_ROWS = 8
MAX_NAME_COLUMNS = 40
RESERVED_LINES = 9
"""Lines for the prompt, its frame, the footer, and some of the conversation."""


class CompletionPopup(Static):
    """A few completions, one of them selected."""

    DEFAULT_CSS = """
    CompletionPopup { layer: popup; dock: bottom; height: auto; width: auto; max-width: 100%; display: none;
            background: $surface; border: round $primary; padding: 0 1; text-wrap: nowrap; }
    CompletionPopup:ansi { background: ansi_default; border: round ansi_blue; }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(id="popup", markup=False)
        self.auto_links = False
        self.items: Sequence[Completion] = ()
        self.marked_index = 0
        self.has_user_choice = False
        """Whether the user moved the selection, rather than only typed."""

    @property
    def is_open(self) -> bool:
        return bool(self.items)

    @property
    def marked_item(self) -> Completion | None:
        return self.items[self.marked_index] if self.items else None

    def offer(self, items: Sequence[Completion]) -> None:
        if not items and not self.items:
            return
        self.items, self.marked_index, self.has_user_choice = items, 0, False
        self.display = bool(items)
        self.redraw()

    def move(self, by: int) -> None:
        if self.items:
            self.marked_index, self.has_user_choice = (self.marked_index + by) % len(self.items), True
            self.redraw()

    def redraw(self) -> None:
        if not self.items:
            return
        max_rows = max(3, min(MAX_ROWS, self.app.size.height - RESERVED_LINES))
        first = max(0, min(self.marked_index - max_rows // 2, len(self.items) - max_rows))
        rows = self.items[first : first + max_rows]
        room = max(20, self.app.size.width - 8)
        names = min(MAX_NAME_COLUMNS, room, max(cell_len(item.display or item.text) for item in rows))
        text = Text("\n", no_wrap=True).join(
            self.render_row(index, names, room) for index in range(first, first + len(rows))
        )
        if len(self.items) > max_rows:
            text.append(f"\n{self.marked_index + 1} of {len(self.items)}", "dim")
        self.update(text)

    def render_row(self, index: int, names: int, room: int) -> Text:
        item = self.items[index]
        is_marked = index == self.marked_index
        click = Style(meta={"@click": f"app.take({index})"})
        text = Text(
            set_cell_size(sanitize_text(item.display or item.text), names), "bold cyan" if is_marked else ""
        )
        text.append("  ")
        text.append(markdown_first_line(item.description), "cyan" if is_marked else "dim")
        text.truncate(room, overflow="ellipsis", pad=is_marked)
        text.stylize(click)
        return Text.assemble(("❯ " if is_marked else "  ", "bold cyan"), text)
