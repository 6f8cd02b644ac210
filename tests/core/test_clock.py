"""A timeout that follows a clock behaves like `asyncio.timeout`."""

from __future__ import annotations

import asyncio
import time

import pytest

from nerve.core.clock import SYSTEM_CLOCK, ClockTimeout, sleep_on_clock, utc_now


def test_the_system_clock_is_the_functions_of_the_machine() -> None:
    assert SYSTEM_CLOCK.time is time.time
    assert SYSTEM_CLOCK.monotonic is time.monotonic
    assert abs(utc_now(SYSTEM_CLOCK).timestamp() - time.time()) < 60


async def test_a_sleep_ends_and_a_cancelled_one_leaves_no_timer() -> None:
    await sleep_on_clock(SYSTEM_CLOCK, 0)
    task = asyncio.create_task(sleep_on_clock(SYSTEM_CLOCK, 3600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_raises_in_its_block_and_the_task_continues() -> None:
    timeout = ClockTimeout(SYSTEM_CLOCK, 0)
    with pytest.raises(TimeoutError):
        async with timeout:
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert timeout.is_expired
    assert task is not None
    assert task.cancelling() == 0


async def test_a_timeout_does_not_hide_the_cancellation_of_its_task() -> None:
    async def wait_in_timeout() -> None:
        async with ClockTimeout(SYSTEM_CLOCK, 3600):
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()
    task = asyncio.create_task(wait_in_timeout())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_keeps_the_error_that_its_block_raises_after_the_expiry() -> None:
    async def fail_in_cleanup() -> None:
        async with ClockTimeout(SYSTEM_CLOCK, 0):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("cleanup") from None

    with pytest.raises(ValueError, match="cleanup"):
        await fail_in_cleanup()


async def test_a_timeout_can_be_stopped_and_restarted_inside_its_block() -> None:
    timeout = ClockTimeout(SYSTEM_CLOCK, 3600)
    assert timeout.remaining_seconds is None

    async def restart_in_block() -> None:
        async with timeout:
            remaining = timeout.remaining_seconds
            assert remaining is not None
            assert 0 < remaining <= 3600
            timeout.restart(None)
            assert timeout.remaining_seconds is None
            timeout.restart(0)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await restart_in_block()
    timeout.restart(0)
    await asyncio.sleep(0)
    assert timeout.remaining_seconds is None
