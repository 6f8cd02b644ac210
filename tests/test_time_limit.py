"""A test that hangs fails, whatever it does."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from time_limit import limit_time

FOLDER = Path(__file__).parent
BLOCKED = """
import signal, threading
from time_limit import limit_time

def wait_for_ever():
    threading.Event().wait()

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
with limit_time(0.1, grace_s=0.1):
    wait_for_ever()
"""


def wait_in_thread() -> None:
    threading.Event().wait()


def wait_in_loop() -> None:
    asyncio.run(asyncio.Event().wait())


def spin_in_task() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - it waits for nothing
            await asyncio.sleep(0)

    asyncio.run(spin())


@pytest.mark.parametrize("hang", [wait_in_thread, wait_in_loop, spin_in_task])
def test_a_test_that_hangs_fails_with_its_stack(hang: Callable[[], None]) -> None:
    message = r"^the test took more than 0.2 s"
    with pytest.raises(pytest.fail.Exception, match=message) as failure, limit_time(0.2):
        hang()
    assert hang.__name__ in [entry.name for entry in failure.traceback]


def test_the_failure_names_where_the_tasks_wait() -> None:
    async def wait_for_answer() -> None:
        await asyncio.Event().wait()

    async def run_tasks() -> None:
        await asyncio.gather(wait_for_answer(), asyncio.sleep(60))

    with pytest.raises(pytest.fail.Exception) as failure, limit_time(0.2):
        asyncio.run(run_tasks())
    for name in ("wait_for_answer", "sleep"):
        assert re.search(rf":\d+ in \S*\b{name}$", str(failure.value), re.MULTILINE)


def test_a_test_fails_although_its_event_loop_logs_the_first_failure() -> None:
    async def swallow() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        loop.call_soon(threading.Event().wait)
        await asyncio.Event().wait()

    with pytest.raises(pytest.fail.Exception), limit_time(0.1, repeat_s=0.5):
        asyncio.run(swallow())


def test_a_process_that_executes_no_python_code_ends_with_its_stack() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "wait_for_ever" in ended.stderr


def test_nothing_remains_of_a_limit() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limit_time(60):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
