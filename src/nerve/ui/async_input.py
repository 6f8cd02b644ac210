"""Terminal input on the event loop."""

from __future__ import annotations

import asyncio
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
