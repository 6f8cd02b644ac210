"""Standard input as lines, read without blocking the end of the process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from nerve.core.nodes.daemon_threads import DAEMON_THREADS

READ_BYTES = 65_536
STANDARD_INPUT = 0


async def read_input_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input until it ends.

    A daemon thread reads, so Ctrl-C does not wait for the next line. The thread holds no lock of a file
    object, which the interpreter would need when it exits.
    """
    parts: list[bytes] = []
    while data := await DAEMON_THREADS.run(read_bytes, STANDARD_INPUT, lambda: None):
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join([*parts, line]).decode(errors="replace")
            parts.clear()
        parts.append(rest)
    if last := b"".join(parts):
        yield last.decode(errors="replace")


def read_bytes(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError:  # it is closed
        return b""
