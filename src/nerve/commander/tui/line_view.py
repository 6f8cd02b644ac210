"""A scrollable view of rendered lines with text selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.style import Style
    from textual.app import App
    from textual.selection import Selection

MAX_CACHED_LINES = 2000
"""Maximum number of cached screen lines."""


def render_strips(app: App[Any], renderable: RenderableType, width: int, indent: int = 0) -> list[Strip]:
    """Render to lines of at most `width`, indented by `indent`."""
    options = app.console_options.update(width=max(width, 1), height=None, highlight=False)
    segments = app.console.render(renderable, options)
    lines = Segment.split_and_crop_lines(segments, max(width, 1), include_new_lines=False, pad=False)
    space = [Segment(" " * indent)] if indent else []
    return [Strip(space + line) for line in lines]


def render_text_strip(app: App[Any], text: Text) -> Strip:
    """Render one line, including the base style of the text."""
    return Strip(Text.assemble(text).render(app.console), text.cell_len)


class LineView(ScrollView):
    """A widget of lines; subclasses may override `line(y)` and `height`."""

    DEFAULT_CSS = "LineView { overflow-x: hidden; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.strips: list[Strip] = []
        self._strip_cache: dict[int, tuple[Strip, Strip]] = {}
        """Screen lines by line number, with the strip each was made from."""
        self._cache_key: tuple[int, Style] | None = None

    def line(self, y: int) -> Strip:
        return self.strips[y]

    @property
    def height(self) -> int:
        return len(self.strips)

    def set_lines(self, strips: list[Strip]) -> None:
        """Replace the lines."""
        self.strips = strips
        self.update_virtual_size()

    def update_virtual_size(self) -> None:
        """Update the virtual size to the number of lines."""
        size = Size(self.scrollable_content_region.width, self.height)
        if size != self.virtual_size:
            self.virtual_size = size
            self.clear_cached_dimensions()
            if self.styles.height is not None and self.styles.height.is_auto:
                self.refresh(layout=True)
        self.refresh()

    # -- drawing -----------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        line_number, width, base = self.scroll_offset.y + y, self.size.width, self.visual_style.rich_style
        if not 0 <= line_number < self.height:
            return Strip.blank(width, base)
        strip = self.line(line_number)
        if self.text_selection is not None:
            return self.finish_strip(self.highlight_selection(strip, line_number), line_number, width, base)
        if self._cache_key != (width, base) or len(self._strip_cache) > MAX_CACHED_LINES:
            self._cache_key, self._strip_cache = (width, base), {}
        cached = self._strip_cache.get(line_number)
        if cached is None or cached[0] is not strip:
            cached = self._strip_cache[line_number] = (
                strip,
                self.finish_strip(strip, line_number, width, base),
            )
        return cached[1]

    def finish_strip(self, strip: Strip, y: int, width: int, base: Style) -> Strip:
        """Pad a line to the width and add the base style and selection offsets."""
        return strip.apply_offsets(0, y).extend_cell_length(width).crop(0, width).apply_style(base)

    def highlight_selection(self, strip: Strip, y: int) -> Strip:
        """Highlight the selected part of a line."""
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is None:
            return strip
        text = Text("", no_wrap=True, end="")
        for segment in strip:
            text.append(segment.text, segment.style)
        start, end = span
        style: Style = self.screen.get_component_rich_style("screen--selection")
        text.stylize(style, start, len(text) if end == -1 else end)
        return Strip(text.render(self.app.console), strip.cell_length)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = "\n".join(self.line(y).text.rstrip() for y in range(self.height))
        return selection.extract(lines), "\n"
