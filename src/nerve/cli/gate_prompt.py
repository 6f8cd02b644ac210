"""Gate prompts at the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from nerve.api.models import GateResponse
from nerve.cli.run_display import print_sentence
from nerve.ui.async_input import read_terminal_line
from nerve.ui.gate_names import resolve_typed_choice
from nerve.ui.json_forms import format_form_hint

if TYPE_CHECKING:
    from rich.console import Console

GATE_POLL_S = 0.2
"""Seconds between two checks whether the gate is still open."""


class TerminalClosed(Exception):
    """The terminal was closed, so the user cannot answer."""


def is_interactive(console: Console) -> bool:
    return console.is_terminal and sys.stdin is not None and sys.stdin.isatty()


def flush_typeahead() -> None:
    """Discard input typed before the prompt, so that it does not answer the gate by accident."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def prompt_gate_answer(
    console: Console, gate: GateResponse, rejection: str, is_open: Callable[[], bool]
) -> str | None:
    """Return the answer of the user, or None if the gate closes while waiting."""
    if rejection:
        print_sentence(console, rejection)
    choices = gate.choices or []
    prompt = f"1 to {len(choices)}, or the answer: " if choices else f"Answer{format_form_hint(gate.form)}: "
    while True:
        console.print(prompt, end="", markup=False)
        read_task = asyncio.ensure_future(read_terminal_line())
        try:
            while not read_task.done():
                await asyncio.wait([read_task], timeout=GATE_POLL_S)
                if not is_open():
                    return None
        finally:
            read_task.cancel()
        line = read_task.result()
        if not line:
            print_sentence(console, "")  # end the prompt line
            raise TerminalClosed
        if answer := resolve_typed_choice(line.strip(), choices):
            return answer
