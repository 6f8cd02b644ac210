"""Screens: a run watched live in a terminal, or line by line in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel

from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import SETTLES, last_name, logged, plain, shorten
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
    """A line for every event that matters, and for what agents do while they work."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._messages: dict[str, str] = {}
        """The last message of each agent; the line of its step shows it, if no other follows."""

    def show(self, panel: Drawn, events: list[WorkflowEvent]) -> None:
        for event in events:
            for line in self._lines(event):
                say(self._console, line)

    def _lines(self, event: WorkflowEvent) -> Iterator[str]:
        spoken = event.event_type == "output_chunk" and event.data.get("stream") == "assistant"
        if (spoken or event.event_type == "tool_call") and (text := self._messages.pop(event.path, "")):
            yield f"[{last_name(event.path)}] {text}"
        if spoken:
            self._messages[event.path] = shorten(str(event.data.get("text", "")))
        elif event.event_type in SETTLES:
            self._messages.pop(event.path, None)
        if (line := logged(event) if says(event) else plain(event)) is not None:
            yield line

    def rest(self) -> None:
        pass


def says(event: WorkflowEvent) -> bool:
    """Whether it is a line that a workflow or an agent logs, or a tool call; the end of a thread is not."""
    return event.event_type == "tool_call" or (event.event_type == "log" and "thread" not in event.data)


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
