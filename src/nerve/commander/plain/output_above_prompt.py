"""Output above the input line, printed without releasing the terminal so that no key is lost."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from prompt_toolkit.application import Application


class OutputAbovePrompt(io.TextIOBase):
    """Buffers output until it is printed above the prompt.

    prompt_toolkit's own printing switches the terminal to cooked mode for a moment: keys typed then are
    echoed into the output, and Enter becomes a different key. This class keeps the terminal in raw mode.
    """

    def __init__(self) -> None:
        self.app: Application[Any] | None = None
        self.editor_task: asyncio.Task[None] | None = None
        """The running external editor, which owns the terminal."""
        self._chunks: list[str] = []

    def write(self, text: str) -> int:
        self._chunks.append(text)
        return len(text)

    def isatty(self) -> bool:
        return True

    async def print_above_prompt(self) -> None:
        """Print the buffered output and redraw the input line below it."""
        app = self.app
        if not self._chunks or (self.editor_task is not None and not self.editor_task.done()):
            return
        if app is None or not app.is_running:
            self.print_remaining()
            return
        if app.output.responds_to_cpr:  # the cursor position must be known before the line moves
            await app.renderer.wait_for_cpr_responses()
        app.renderer.erase()
        app.output.write_raw(self._drain_text())
        app.output.flush()
        app.renderer.request_absolute_cursor_position()
        app.invalidate()

    def print_remaining(self) -> None:
        """Print the rest of the output after the input line is closed."""
        if (text := self._drain_text()) and sys.__stdout__ is not None:
            sys.__stdout__.write(text)
            sys.__stdout__.flush()

    def _drain_text(self) -> str:
        text, self._chunks = "".join(self._chunks), []
        return text
