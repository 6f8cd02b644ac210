"""A program in a terminal that tmux draws: what is typed is sent, what is shown is read."""

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
    """A terminal of its own server, which ends with the test."""

    def __init__(self, folder: Path, size: tuple[int, int] = (100, 30), **env: str) -> None:
        self.folder, self.size, self.env = folder, size, env
        # A name of its own: the server of the terminal before may still be ending.
        self._socket = str(folder / f"tmux-{secrets.token_hex(4)}")

    def __enter__(self) -> Tmux:
        told = {"TERM": "xterm-256color", "XDG_CONFIG_HOME": str(self.folder / "config"), **self.env}
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in told.items())
        width, height = map(str, self.size)
        shell = f"cd {shlex.quote(str(self.folder))}; env -u NO_COLOR {given} bash --norc --noprofile"
        self.tmux("new-session", "-d", "-x", width, "-y", height, shell)
        self.run("PS1='$ '")
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux("kill-server")

    def tmux(self, *arguments: str, given: str | None = None) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        clean = {name: value for name, value in os.environ.items() if name != "TMUX"}
        return subprocess.run(
            command, input=given, capture_output=True, text=True, check=True, env=clean
        ).stdout

    # -- what is typed -----------------------------------------------------------------------------------

    def run(self, command: str) -> None:
        self.type(command)
        self.press("Enter")

    def nerve(self, *arguments: str) -> None:
        """Start the Commander, and return when one can type."""
        self.run("clear; " + shlex.join([*NERVE, *arguments]) + "; echo it ended with $?")
        self.until("❯", "? keys")

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Paste as a terminal does, in brackets."""
        self.tmux("load-buffer", "-", given=text)
        self.tmux("paste-buffer", "-p", "-r")

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    # -- what is shown -----------------------------------------------------------------------------------

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    @property
    def is_full_screen(self) -> bool:
        return self.tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def until(self, *texts: str) -> str:
        """What is shown when all of these are."""
        return self.when(lambda screen: all(text in screen for text in texts), f"no {texts}")

    def gone(self, *texts: str) -> str:
        return self.when(lambda screen: not any(text in screen for text in texts), f"still {texts}")

    def when(self, is_so: object, told: str) -> str:
        assert callable(is_so)
        last, end = "", time.monotonic() + PATIENCE
        while time.monotonic() < end:
            last = self.screen
            if is_so(last):
                return last
            time.sleep(LOOK)
        raise AssertionError(f"{told} in:\n{last}")
