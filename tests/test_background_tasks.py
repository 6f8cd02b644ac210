"""Background tasks end when they are cancelled, whatever else happens at the same time."""

import asyncio

import pytest

from nerve.background_tasks import cancel_tasks, run_in_background, wait_for_event


async def test_a_cancellation_is_not_lost_when_the_event_is_set_at_the_same_time() -> None:
    event = asyncio.Event()
    task = asyncio.create_task(wait_for_event(event, 60))
    await asyncio.sleep(0)
    event.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_waiting_for_an_event_ends_after_its_time() -> None:
    event = asyncio.Event()
    await wait_for_event(event, 0)
    assert not event.is_set()


async def test_cancelled_tasks_have_ended_with_their_errors_dropped() -> None:
    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("late")

    tasks = [asyncio.create_task(fail()) for _ in range(2)]
    await asyncio.sleep(0)
    await cancel_tasks(*tasks)
    assert [str(task.exception()) for task in tasks] == ["late", "late"]


async def test_a_background_task_ends_with_its_context() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    async with run_in_background(work()):
        await asyncio.sleep(0)
        steps.append("inside")
    assert steps == ["inside", "cancelled"]
