"""A cancelled command ends with all its descendants."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from nerve.process import Exit, child_env, run_command
from process.seen import HOSTILE, TAG, alive, eventually, tagged

FORK_CHAIN = """
import os, sys
print("ready", flush=True)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


async def started(argv: list[str], tag: str, grace: float, cwd: Path | None = None) -> asyncio.Task[Exit]:
    """Start the command as a task, and wait until it is ready."""
    said: list[str] = []
    environment = child_env({TAG: tag})

    def hear(_: str, text: str) -> None:
        said.append(text)

    running = run_command(argv, env=environment, grace=grace, on_output=hear, cwd=cwd)
    task = asyncio.create_task(running)
    await eventually(lambda: "ready" in "".join(said) or task.done())
    return task


SOON_S = 30.0
"""For a busy machine; the commands sleep for 600 seconds, and some may clean up for 60."""


async def cancelled(task: asyncio.Task[Exit]) -> float:
    """Cancel and wait; return the duration in seconds."""
    begin = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - begin


async def test_cancel_ends_every_kind_of_descendant(tag: str) -> None:
    task = await started(["bash", "-c", HOSTILE], tag, grace=0.3)
    assert len(tagged(tag)) >= 5
    assert await cancelled(task) < SOON_S
    assert tagged(tag) == []


@pytest.mark.full
async def test_cancel_ends_every_kind_of_descendant_fifty_times_within_six_seconds(tag: str) -> None:
    for batch in range(5):
        tags = [f"{tag}-{batch}-{number}" for number in range(10)]
        tasks = [await started(["bash", "-c", HOSTILE], each, grace=5.0) for each in tags]
        times = await asyncio.gather(*(cancelled(task) for task in tasks))
        assert max(times) <= 6
        assert [tagged(each) for each in tags] == [[]] * len(tags)


async def test_cancel_ends_a_child_that_ignores_term(tag: str) -> None:
    task = await started(["bash", "-c", "trap '' TERM; echo ready; sleep 600; sleep 600"], tag, grace=0.2)
    assert 0.2 <= await cancelled(task) < SOON_S
    assert tagged(tag) == []


async def test_cancel_of_children_that_obey_term_does_not_wait_for_the_grace(tag: str) -> None:
    task = await started(["bash", "-c", "sleep 600 & setsid sleep 600 & echo ready; wait"], tag, grace=60)
    assert await cancelled(task) < SOON_S
    assert tagged(tag) == []


async def test_a_stopped_child_acts_on_term(tag: str, tmp_path: Path) -> None:
    script = "trap 'echo bye > bye; exit' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done"
    task = await started(["bash", "-c", script], tag, grace=60, cwd=tmp_path)
    assert await cancelled(task) < SOON_S
    assert (tmp_path / "bye").read_text() == "bye\n"


async def test_cancel_lets_a_child_clean_up_within_the_grace(tag: str, tmp_path: Path) -> None:
    script = "trap 'sleep 0.1; echo clean > state; exit' TERM; echo ready; sleep 600"
    task = await started(["bash", "-c", script], tag, grace=60, cwd=tmp_path)
    assert await cancelled(task) < SOON_S
    assert (tmp_path / "state").read_text() == "clean\n"


async def test_cancelled_twice_it_still_waits_until_the_tree_is_gone(tag: str) -> None:
    task = await started(["bash", "-c", "trap '' TERM; echo ready; sleep 600"], tag, grace=0.4)
    task.cancel()
    await asyncio.sleep(0)  # let the task handle the first cancellation
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert tagged(tag) == []


async def test_a_timeout_ends_the_tree(tag: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await run_command(["sleep", "600"], env=child_env({TAG: tag}))
    assert tagged(tag) == []


async def test_a_chain_of_forks_is_caught(tag: str) -> None:
    task = await started([sys.executable, "-I", "-S", "-c", FORK_CHAIN], tag, grace=60)
    await asyncio.wait([task], timeout=10)
    assert task.done()
    assert tagged(tag) == []


@pytest.mark.parametrize("moments", [12, pytest.param(200, marks=pytest.mark.full)])
async def test_cancel_at_any_moment_of_the_start_leaves_no_orphan(tag: str, moments: int) -> None:
    for number in range(moments):
        pids: list[int] = []
        running = run_command(["sleep", "600"], env=child_env({TAG: tag}), on_start=pids.append)
        task = asyncio.create_task(running)
        await asyncio.sleep(0.03 * number / moments)
        task.cancel()
        await asyncio.wait([task])
        assert not any(map(alive, pids))
    assert tagged(tag) == []
