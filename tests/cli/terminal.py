"""A terminal for a command: what it shows is read, what is typed is written."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios

from nerve_processes import Process

PATIENCE = 60


class Terminal:
    """Runs `nerve …` in a process group of its own, in a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 80) -> None:
        self._screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        screen = {"TERM": "xterm-256color", "COLUMNS": str(columns)}  # the tests' own may say otherwise
        self._process = Process(*arguments, streams=(inside, inside, inside), **screen)
        os.close(inside)
        self.shown = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill_all()
        os.close(self._screen)

    def until(self, text: str) -> str:
        """What is shown up to and with `text`, from where the last look ended."""
        seen = ""
        while text not in seen:
            seen += self._read()
        return seen

    def type(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())

    def press(self, key: str) -> None:
        os.write(self._screen, key.encode())

    def interrupt(self) -> None:
        """Ctrl-C: every process of the terminal gets it."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int:
        """The exit code, when everything is shown."""
        try:
            while True:
                self._read()
        except EOFError:
            return self._process.wait(PATIENCE)

    def _read(self) -> str:
        ready, _, _ = select.select([self._screen], [], [], PATIENCE)
        assert ready, f"nothing more is shown after:\n{self.shown}"
        try:
            text = os.read(self._screen, 65536).decode(errors="replace")
        except OSError:
            text = ""
        if not text:
            raise EOFError(self.shown)
        self.shown += text
        return text
