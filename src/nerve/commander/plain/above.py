"""Output above the line that is edited; the terminal is not given back meanwhile, so that no key is lost."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from prompt_toolkit.application import Application


class Above(io.TextIOBase):
    """Keeps what is written until it is shown.

    Where prompt_toolkit prints above a prompt, the terminal is in its own mode for a moment: it shows what is
    typed then in the middle of the output, and makes another key of Enter. Here, it stays as it is.
    """

    def __init__(self) -> None:
        self.app: Application[Any] | None = None
        self.editor: asyncio.Task[None] | None = None
        """What has the terminal for itself."""
        self._text: list[str] = []

    def write(self, text: str) -> int:
        self._text.append(text)
        return len(text)

    def isatty(self) -> bool:
        return True

    async def show(self) -> None:
        """Show what was written, and the line below it again."""
        app = self.app
        if not self._text or (self.editor is not None and not self.editor.done()):
            return
        if app is None or not app.is_running:
            self.rest()
            return
        if app.output.responds_to_cpr:  # where the line is must be known before it is moved
            await app.renderer.wait_for_cpr_responses()
        app.renderer.erase()
        app.output.write_raw(self._taken())
        app.output.flush()
        app.renderer.request_absolute_cursor_position()
        app.invalidate()

    def rest(self) -> None:
        """Show what is left when the line is gone."""
        if (text := self._taken()) and sys.__stdout__ is not None:
            sys.__stdout__.write(text)
            sys.__stdout__.flush()

    def _taken(self) -> str:
        text, self._text = "".join(self._text), []
        return text
