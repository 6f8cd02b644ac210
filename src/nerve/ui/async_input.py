"""Terminal input: lines on the event loop, and what was typed too early."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable

CLOSED_POLL_S = 0.2
"""Seconds between two checks whether a line is still wanted."""


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


async def read_line_while(
    is_open: Callable[[], bool], read_line: Callable[[], Awaitable[str]] = read_terminal_line
) -> str | None:
    """Return a line, "" at the end of input, or None if what it is for closes first."""
    read_task = asyncio.ensure_future(read_line())
    try:
        while not read_task.done():
            await asyncio.wait([read_task], timeout=CLOSED_POLL_S)
            if not is_open():
                return None
        return read_task.result()
    finally:
        read_task.cancel()


def flush_typeahead() -> None:
    """Discard input typed before the prompt, so that it does not answer the gate by accident."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
