"""Test screens: an app with a hand-made state, and snapshots of its output."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from textual.widgets import Input

from commander.tui.state_fixtures import NOW, Scripted
from nerve.commander.core.state import CommanderState
from nerve.commander.history import InputHistory
from nerve.commander.tui.app import CommanderApp

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.pilot import Pilot

SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDE, SMALL = (100, 30), (60, 16)
TURNS = 5
"""Idle turns of the event loop before the app counts as idle: a task may be between two queues."""


def at_rest(pump: MessagePump) -> bool:
    """Return whether a widget waits for messages."""
    queue = pump._message_queue
    return pump._closed or (queue.empty() and bool(queue.ready_event._waiters))


async def wait_until_quiet(app: CommanderApp) -> None:
    """Return when all widgets are idle; the wait of Textual itself depends on CPU time."""
    quiet = 0
    async with asyncio.timeout(30):
        while quiet < TURNS:
            await asyncio.sleep(0)
            pumps = [pump for screen in app.screen_stack for pump in screen.walk_children(with_self=True)]
            over = app._exit or app._exception_event.is_set()
            quiet = quiet + 1 if over or all(map(at_rest, [app, *pumps])) else 0


@contextmanager
def without_waiting(app: CommanderApp) -> Iterator[None]:
    """Make key presses wait exactly until all widgets are idle."""

    async def idle(*_: float) -> None:
        await wait_until_quiet(app)

    with patch("textual.app.wait_for_idle", idle), patch("textual.pilot.wait_for_idle", idle):
        yield


@dataclass
class Screen:
    app: CommanderApp
    pilot: Pilot[str]
    controller: Scripted

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        await self.press(*text)

    async def settle(self) -> None:
        """Draw all changes."""
        for _ in range(3):
            await self.pilot.pause()
            self.app.draw_changes()
        await self.app.workers.wait_for_complete()
        while self.app.stream.stale_blocks or self.app.stream.postponed:
            await self.pilot.pause(0.01)
            self.app.draw_changes()
        for field in self.app.screen.query(Input):
            field.cursor_blink = False
        await self.pilot.pause()

    @property
    def text(self) -> str:
        """The text on the screen."""
        return "\n".join(
            "".join(segment.text for segment in line).rstrip()
            for line in self.app.screen._compositor.render_strips()
        )


@asynccontextmanager
async def shown(
    state: CommanderState,
    size: tuple[int, int] = WIDE,
    past: tuple[str, ...] = (),
    clock: Callable[[], datetime] = lambda: NOW,
) -> AsyncIterator[Screen]:
    controller = Scripted(state)
    app = CommanderApp(controller, InputHistory(entries=past), clock)
    with without_waiting(app):
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot, controller)
            await screen.settle()
            yield screen


def difference(app: CommanderApp, name: str) -> str:
    """Return "" if the screen matches its snapshot, else the path of the actual image.

    UPDATE_SNAPSHOTS=1 replaces the snapshot.
    """
    now = re.sub(r"terminal-\d+", "terminal", app.export_screenshot())
    now = re.sub(r"\n\s*@font-face \{.*?\}", "", now, flags=re.DOTALL)
    kept = SNAPSHOTS / f"{name}.svg"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOTS.mkdir(exist_ok=True)
        kept.write_text(now)
    if kept.exists() and kept.read_text() == now:
        return ""
    other = Path(tempfile.gettempdir()) / f"nerve-{name}.svg"
    other.write_text(now)
    return str(other)
