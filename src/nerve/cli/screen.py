"""Screens: a run watched live in a terminal, or line by line in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel

from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import logged, plain
from nerve.commander.reading import typed_line
from nerve.core.workflow import GateInfo, WorkflowEvent

__all__ = ["LiveScreen", "PlainScreen", "Screen", "ask", "say", "screen_for", "typed_line"]

Drawn = Callable[[int], Panel]
"""Draws a panel of a width."""


class Screen(Protocol):
    """Where a run is shown."""

    def show(self, panel: Drawn, events: list[WorkflowEvent]) -> None: ...

    def rest(self) -> None:
        """Let go of the terminal, for a question or for good."""


class LiveScreen:
    """A panel that is drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def show(self, panel: Drawn, events: list[WorkflowEvent]) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        # The empty line is where the terminal echoes what is typed, Ctrl-C too.
        self._live.update(Group(panel(self._console.width), ""), refresh=True)

    def rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class PlainScreen:
    """A line for every event that matters."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, panel: Drawn, events: list[WorkflowEvent]) -> None:
        for event in events:
            if (line := logged(event) if says(event) else plain(event)) is not None:
                say(self._console, line)

    def rest(self) -> None:
        pass


def says(event: WorkflowEvent) -> bool:
    """Whether it is a line that a workflow or an agent logs; that a thread has ended concerns nobody."""
    return event.event_type == "log" and "thread" not in event.data


def screen_for(console: Console) -> Screen:
    lively = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console) if lively else PlainScreen(console)


async def ask(console: Console, gate: GateInfo, refused: str) -> str | None:
    """A person's answer, or None where nobody can be asked. `refused` says why the last was not taken."""
    if not (console.is_terminal and sys.stdin.isatty()):
        return None
    if refused:
        say(console, refused)
    else:
        console.print(Panel(gate.prompt, title="⏸ Waiting for Input", border_style="yellow", expand=False))
    choices = gate.choices or []
    console.print(f"{' or '.join(choices)}? [dim](Enter: {choices[-1]})[/] ", end="")
    return (await typed_line()).strip().lower() or choices[-1]


def say(console: Console, text: str) -> None:
    """A sentence, wrapped for a terminal and left whole in a pipe."""
    console.print(harmless(text), markup=False, soft_wrap=not console.is_terminal)
