"""A program in a tmux terminal: sends keys and reads the screen."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 45
LOOK = 0.05
NERVE = [sys.executable, "-m", "nerve"]
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A terminal on its own tmux server, which ends with the test."""

    def __init__(self, folder: Path, size: tuple[int, int] = (100, 30), **env: str) -> None:
        self.folder, self.size, self.env = folder, size, env
        # A unique name, because the previous tmux server may still be exiting.
        self._socket = str(folder / f"tmux-{secrets.token_hex(4)}")

    def __enter__(self) -> Tmux:
        environment = {"TERM": "xterm-256color", "XDG_CONFIG_HOME": str(self.folder / "config"), **self.env}
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        width, height = map(str, self.size)
        shell = f"cd {shlex.quote(str(self.folder))}; env -u NO_COLOR {assignments} bash --norc --noprofile"
        self.tmux("new-session", "-d", "-x", width, "-y", height, shell)
        self.run("PS1='$ '")
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux("kill-server")

    def tmux(self, *arguments: str, stdin: str | None = None) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        clean = {name: value for name, value in os.environ.items() if name != "TMUX"}
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True, env=clean
        ).stdout

    # -- input -------------------------------------------------------------------------------------------

    def run(self, command: str) -> None:
        self.type(command)
        self.press("Enter")

    def nerve(self, *arguments: str) -> None:
        """Start the Commander and return when it accepts input."""
        self.run("clear; " + shlex.join([*NERVE, *arguments]) + "; echo it ended with $?")
        self.until("❯", "? keys")

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Paste with bracketed paste."""
        self.tmux("load-buffer", "-", stdin=text)
        self.tmux("paste-buffer", "-p", "-r")

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    # -- output ------------------------------------------------------------------------------------------

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    @property
    def is_full_screen(self) -> bool:
        return self.tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def until(self, *texts: str) -> str:
        """Return the screen as soon as it contains all of these."""
        return self.when(lambda screen: all(text in screen for text in texts), f"no {texts}")

    def gone(self, *texts: str) -> str:
        return self.when(lambda screen: not any(text in screen for text in texts), f"still {texts}")

    def when(self, is_so: object, message: str) -> str:
        assert callable(is_so)
        last, end = "", time.monotonic() + PATIENCE
        while time.monotonic() < end:
            last = self.screen
            if is_so(last):
                return last
            time.sleep(LOOK)
        raise AssertionError(f"{message} in:\n{last}")
