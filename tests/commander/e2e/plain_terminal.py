"""A pseudo-terminal for the plain mode: sends keys and reads the screen."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pyte

APP = Path(__file__).with_name("plain_app.py")
PATIENCE = 60
KEYS = {
    "enter": "\r", "newline": "\n", "alt-enter": "\x1b\r", "esc": "\x1b", "ctrl-c": "\x03", "ctrl-d": "\x04",
    "ctrl-r": "\x12", "ctrl-g": "\x07", "ctrl-x": "\x18", "ctrl-e": "\x05", "tab": "\t", "up": "\x1b[A",
    "down": "\x1b[B", "f3": "\x1bOR",
}  # fmt: skip


class Terminal:
    """A program in a terminal of 100 columns, with all of its output."""

    def __init__(self, folder: Path, command: list[str] | None = None, size=(40, 100), **env: str) -> None:
        self.screen = pyte.HistoryScreen(size[1], size[0], history=2000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""
        program, *arguments = command or [sys.executable, "-W", "error", str(APP)]
        self._child = pexpect.spawn(
            program,
            arguments,
            cwd=str(folder),
            env={**os.environ, "TERM": "xterm-256color", "EDITOR": "true", **env},
            dimensions=size,
            encoding="utf-8",
            codec_errors="replace",
        )
        self._child.delaybeforesend = None
        self.screen.write_process_input = self._child.send

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close(force=True)

    @property
    def lines(self) -> list[str]:
        """Return every line, including those that scrolled away."""
        above = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return [line.rstrip() for line in [*above, *self.screen.display]]

    @property
    def shown(self) -> str:
        return "\n".join(self.lines)

    def type(self, text: str) -> None:
        self._child.send(text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._child.send(KEYS[key])

    def enter(self, text: str) -> None:
        """Type a line, wait until the terminal echoes it, and press Enter."""
        self.type(text)
        self.press("enter")

    def paste(self, text: str) -> None:
        """Paste with bracketed paste."""
        self._child.send("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")

    def until(self, *texts: str, gone: str = "") -> str:
        """Return the screen as soon as it contains all of these."""
        for _ in self._frames():
            if all(text in self.shown for text in texts) and (not gone or gone not in self.shown):
                return self.shown
        missing = [text for text in texts if text not in self.shown]
        raise AssertionError(f"{missing} not shown (or {gone!r} still is):\n{self.shown}")

    def end(self) -> int | None:
        """Return the exit code after reading all output."""
        for _ in self._frames():
            if self._child.flag_eof:
                self._child.close()
                return self._child.exitstatus
        raise AssertionError(f"it does not end:\n{self.shown}")

    def _frames(self) -> Iterator[None]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            yield
            try:
                read = self._child.read_nonblocking(65536, timeout=0.05)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                self._child.flag_eof = True
                yield
                return
            self.raw += read
            self._stream.feed(read)
