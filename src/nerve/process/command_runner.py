"""Run one command and return its output; none of its descendants outlives the call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.process.output_capture import OutputCapture
from nerve.process.supervised_process import open_process

DEFAULT_KEEP_BYTES = 16 * 1024 * 1024
DRAIN_TIMEOUT_S = 1.0
"""Seconds to wait for the rest of the output, in case a process outside the tree holds the pipe open."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended; `code` is negative when a signal ended it."""

    code: int
    stdout: str
    stderr: str
    dropped: int  # bytes omitted from the middle of stdout and stderr together


async def run_command(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    on_output: Callable[[str, str], None] | None = None,
    keep: int = DEFAULT_KEEP_BYTES,
    grace: float = 5.0,
    on_start: Callable[[int], None] | None = None,
) -> Exit:
    """Run `argv`, and end its whole tree when it exits or the task is cancelled.

    An OSError means that the command could not be started; an exit code, that it ran. A cancelled call
    sends TERM, then KILL after `grace` seconds, and returns after the last descendant is gone. `env` is
    the complete environment of the child. The call returns the first and the last `keep` bytes of each
    stream. An exception of a callback ends the tree and is raised.
    """
    stdout, stderr = OutputCapture("stdout", keep, on_output), OutputCapture("stderr", keep, on_output)
    async with open_process(
        argv, cwd=cwd, env=env, grace=grace, stdout=stdout, stderr=stderr, has_stdin=bool(stdin)
    ) as process:
        if on_start is not None and process.pid:
            on_start(process.pid)
        if process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.write_eof()
        waiting: set[asyncio.Future[Any]] = {process.exited, stdout.closed, stderr.closed}
        while not process.exited.done() and stdout.error is stderr.error is None:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting and process.exited.done():
            await asyncio.wait(waiting, timeout=DRAIN_TIMEOUT_S)
    if (error := stdout.error or stderr.error) is not None:
        raise error
    dropped = stdout.captured.dropped + stderr.captured.dropped
    stdout_text, stderr_text = await stdout.captured.read_text(), await stderr.captured.read_text()
    return Exit(process.exited.result(), stdout_text, stderr_text, dropped)
