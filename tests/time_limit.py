"""The time limit of a test: one that hangs fails, and shows where."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

REPEAT_S = 1.0
"""Seconds until a test is failed again that did not end; an event loop logs what its callbacks raise."""
GRACE_S = 60.0
"""Seconds after which the process ends with the stacks of all threads: the test runs no Python code."""


@contextmanager
def limit_time(
    seconds: float, stderr: int = 2, repeat_s: float = REPEAT_S, grace_s: float = GRACE_S
) -> Iterator[None]:
    """Fail what takes longer than some seconds, at the line where it is; `stderr` gets the last report."""

    def fail(*_: Any) -> None:
        faulthandler.dump_traceback()  # of all threads
        pytest.fail("\n".join([f"the test took more than {seconds:g} s", *find_waiting_lines()]))

    previous = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds, repeat_s)
    faulthandler.dump_traceback_later(seconds + grace_s, exit=True, file=stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def find_waiting_lines() -> Iterator[str]:
    """Yield where each task of the running event loop waits, which no stack shows."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return
    for task in tasks:
        yield f"{task.get_name()}:"
        waiting: Any = task.get_coro()
        while (frame := getattr(waiting, "cr_frame", None)) is not None:
            yield f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
            waiting = waiting.cr_await


def copy_stderr() -> int:
    """Return a descriptor of standard error that stays when a test captures it."""
    return os.dup(2)
