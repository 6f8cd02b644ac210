"""Many commands leave no descriptor and no zombie."""

from __future__ import annotations

import asyncio

import pytest

from nerve.process import run_command
from process.seen import eventually, open_fds, zombies


@pytest.mark.parametrize(("total", "at_once"), [(60, 20), pytest.param(1000, 200, marks=pytest.mark.full)])
async def test_commands_leak_no_descriptors_and_no_zombies(total: int, at_once: int) -> None:
    await run_command(["true"])
    before, dead, turn = open_fds(), zombies(), asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with turn:
            result = await run_command(["bash", "-c", f"cat; echo {number}"], stdin=b"in ")
            assert result.stdout == f"in {number}\n"

    await asyncio.gather(*map(one, range(total)))
    assert abs(open_fds() - before) <= 5
    assert zombies() == dead


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.full)])
async def test_many_commands_cancelled_at_once_leave_no_process(count: int) -> None:
    before = open_fds()
    running: list[int] = []
    tasks = [
        asyncio.create_task(
            run_command(["bash", "-c", "sleep 600 & wait"], on_start=running.append, grace=30)
        )
        for _ in range(count)
    ]
    await eventually(lambda: len(running) == count, within=60)
    for task in tasks:
        task.cancel()
    assert (await asyncio.wait(tasks, timeout=20))[1] == set()
    assert abs(open_fds() - before) <= 5
    assert zombies() == []
