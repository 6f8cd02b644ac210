"""Terminal input: lines on the event loop, and what was typed too early."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def read_terminal_line() -> str:
    """Read a line from the terminal on the event loop, so that Ctrl-C is handled."""
    loop = asyncio.get_running_loop()
    line_future: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not line_future.done():
            line_future.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        return await line_future
    finally:
        loop.remove_reader(sys.stdin.fileno())


def flush_typeahead() -> None:
    """Discard input typed before the prompt, so that it does not answer the gate by accident."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
