"""The engine waits for processes of a dead engine before it repeats their work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time

import pytest

from nerve.process import child_env, orphans
from process.seen import eventually


def start(**env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env=child_env(env))


async def test_processes_of_a_dead_engine_are_awaited() -> None:
    with start(NERVE_OWNER=f"{os.getpid()}.1") as orphan:  # an earlier engine with the same pid
        await eventually(lambda: str(orphan.pid) in orphans.find_orphans())
        waiting = asyncio.create_task(orphans.wait_for_orphans())
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        orphan.kill()
        orphan.wait()
        await asyncio.wait_for(waiting, 10)


async def test_processes_of_a_living_engine_are_not_awaited() -> None:
    with start() as ours:
        await eventually(lambda: orphans.owner_of_process(str(ours.pid)))
        assert str(ours.pid) not in orphans.find_orphans()
        ours.send_signal(signal.SIGKILL)


async def test_a_process_that_does_not_end_is_an_error_with_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "ORPHAN_TIMEOUT_S", 0.0)
    with start(NERVE_OWNER="1.nobody") as orphan:
        await eventually(lambda: str(orphan.pid) in orphans.find_orphans())
        began = time.monotonic()
        with pytest.raises(orphans.StillThere, match=str(orphan.pid)):
            await orphans.wait_for_orphans()
        assert time.monotonic() - began < 30
        orphan.kill()
