"""Asking a person at the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.text import Text

from nerve.api.models import GateTold
from nerve.cli.screen import say, typed_line
from nerve.commander.core.forms import lines, takes
from nerve.commander.core.gates import chosen, preview_of
from nerve.commander.core.harmless import harmless, on_one_line

if TYPE_CHECKING:
    from rich.console import Console

LOOK = 0.2
"""Seconds between two looks at whether the gate is still open."""


class Nobody(Exception):
    """There is nobody to ask: the terminal was closed."""


def can_ask(console: Console) -> bool:
    return console.is_terminal and sys.stdin is not None and sys.stdin.isatty()


def forget_typed() -> None:
    """What was typed before a question was asked does not answer it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def show_gate(console: Console, gate: GateTold, name: str) -> None:
    """The question, what it is about, and what can be answered."""
    text = Text(harmless(gate.prompt))
    if gate.note:
        text.append(f"\n{harmless(gate.note)}", "dim")
    if preview := preview_of(gate.input_preview):
        text.append(f"\n\n{harmless(preview)}\n")
    for number, choice in enumerate(gate.choices or [], start=1):
        text.append(f"\n{number}  {harmless(choice)}")
    for field in lines(gate.form or {}):
        text.append(f"\n{field}")
    if not gate.choices and gate.options:
        text.append(f"\nfor example: {harmless(', '.join(gate.options))}", "dim")
    title = Text(f"⏸ Waiting for Input: {on_one_line(name)}")
    console.print(Panel(text, title=title, border_style="yellow", expand=False))


async def ask(console: Console, gate: GateTold, refused: str, is_open: Callable[[], bool]) -> str | None:
    """A person's answer; None when the gate was settled another way meanwhile."""
    if refused:
        say(console, refused)
    choices = gate.choices or []
    told = f"1 to {len(choices)}, or the answer: " if choices else f"Answer{takes(gate.form)}: "
    while True:
        console.print(told, end="", markup=False)
        typing = asyncio.ensure_future(typed_line())
        try:
            while not typing.done():
                await asyncio.wait([typing], timeout=LOOK)
                if not is_open():
                    return None
        finally:
            typing.cancel()
        line = typing.result()
        if not line:
            say(console, "")  # what follows is no answer to the question
            raise Nobody
        if answer := chosen(line.strip(), choices):
            return answer
