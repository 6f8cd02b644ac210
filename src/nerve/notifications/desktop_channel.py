"""Notifications on the desktop of the machine, by the program of its system."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

from nerve.notifications.delivery import ATTEMPT_TIMEOUT_S, DeliveryFailed
from nerve.notifications.messages import MessageWriter, NotifyMessage
from nerve.process import child_env, run_command

DESKTOP_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
"""What a program needs to reach the desktop of the user."""
APPLESCRIPT = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"


class DesktopChannel:
    """The desktop of the user that runs Nerve."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer

    async def send(self, message: NotifyMessage) -> None:
        if problem := self.find_problem():
            raise DeliveryFailed(problem, is_final=True)
        text = self._writer.write(message)
        extra = {name: os.environ[name] for name in DESKTOP_VARIABLES if name in os.environ}
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                ended = await run_command(self.command(text.title, text.body), env=child_env(extra))
        except TimeoutError:
            raise DeliveryFailed(f"{self.program} did not end within {ATTEMPT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise DeliveryFailed(f"{self.program} could not be started: {error.strerror}") from None
        if ended.code:
            raise DeliveryFailed(f"{self.program} failed with exit code {ended.code}")

    @property
    def program(self) -> str:
        """The program that shows a notification."""
        return "osascript" if sys.platform == "darwin" else "notify-send"

    def command(self, title: str, body: str) -> list[str]:
        """Return the command that shows a text; the text is only ever an argument."""
        if sys.platform == "darwin":
            return [self.program, "-e", APPLESCRIPT, "--", title, body]
        # The body is markup.
        escaped = body.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return [self.program, "--app-name=Nerve", "--", title, escaped]

    async def close(self) -> None:
        pass

    def describe(self) -> str:
        return f"the desktop of this machine by {self.program}"

    def find_problem(self) -> str:
        if shutil.which(self.program) is None:
            return f"{self.program} is not installed"
        return ""
