"""Output above the line that is edited; the terminal is not given back meanwhile, so that no key is lost."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from prompt_toolkit.application import Application


class OutputAbovePrompt(io.TextIOBase):
    """Keeps what is written until it is shown.

    Where prompt_toolkit prints above a prompt, the terminal is in its own mode for a moment: it shows what is
    typed then in the middle of the output, and makes another key of Enter. Here, it stays as it is.
    """

    def __init__(self) -> None:
        self.app: Application[Any] | None = None
        self.editor_task: asyncio.Task[None] | None = None
        """What has the terminal for itself."""
        self._chunks: list[str] = []

    def write(self, text: str) -> int:
        self._chunks.append(text)
        return len(text)

    def isatty(self) -> bool:
        return True

    async def print_above_prompt(self) -> None:
        """Show what was written, and the line below it again."""
        app = self.app
        if not self._chunks or (self.editor_task is not None and not self.editor_task.done()):
            return
        if app is None or not app.is_running:
            self.print_remaining()
            return
        if app.output.responds_to_cpr:  # where the line is must be known before it is moved
            await app.renderer.wait_for_cpr_responses()
        app.renderer.erase()
        app.output.write_raw(self._drain_text())
        app.output.flush()
        app.renderer.request_absolute_cursor_position()
        app.invalidate()

    def print_remaining(self) -> None:
        """Show what is left when the line is gone."""
        if (text := self._drain_text()) and sys.__stdout__ is not None:
            sys.__stdout__.write(text)
            sys.__stdout__.flush()

    def _drain_text(self) -> str:
        text, self._chunks = "".join(self._chunks), []
        return text
