"""A server that is told to stop under load, and one whose disk hangs: nothing is lost, and it is said."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import apsw
import httpx2
import pytest

from e2e.world import Asking, World, tell, until

STOPPED = 15.0


@pytest.mark.parametrize("clients", [8, pytest.param(50, marks=pytest.mark.full)])
async def test_a_stop_under_load_loses_nothing_and_the_next_start_resumes(
    make: Callable[..., World], clients: int
) -> None:
    """It takes nothing new after a second, what it has taken it acknowledges, and it is gone in 15.

    Whoever waits for a run is sent away after 5 seconds; in the quick figures, after one.
    """
    world = make(otherwise={"nerve.server.uvicorn_server.SHUTDOWN_GRACE_S": 1} if clients < 50 else {})
    waiting: list[dict[str, Any]] = []
    seen: list[int] = []

    async def busy(client: Asking, number: int) -> None:
        chance = random.Random(number)
        with contextlib.suppress(httpx2.TransportError):
            while True:
                reply = await client.post("/api/runs", workflow=chance.choice(["ask", "hello"]), wait=True)
                seen.append(reply.status_code)
                if reply.status_code == 200 and reply.json()["gates"] and chance.random() < 0.7:
                    seen.append((await client.answer(reply.json())).status_code)
                elif reply.status_code == 200 and reply.json()["gates"]:
                    waiting.append(reply.json())

    async with world.client(at_once=clients) as client:
        slow = asyncio.create_task(client.post("/api/runs", workflow="rest", input=600, wait=True))
        working = [asyncio.create_task(busy(client, number)) for number in range(clients)]
        await until(lambda: len(seen) > clients * 5)
        began = time.monotonic()
        stopping = asyncio.create_task(asyncio.to_thread(world.stop))
        refused = await refuses(world)
        assert await stopping == 0
        seconds = time.monotonic() - began
        await asyncio.gather(*working)
        assert (await slow).json()["code"] == "busy"
    tell(requests=len(seen), refused=refused, seconds=seconds, waiting=len(waiting))
    assert refused <= 1
    assert seconds <= STOPPED
    assert set(seen) <= {200, 503}
    world.start()
    async with world.client() as client:
        states = {run["run_id"]: run["state"] for run in (await client.get("/api/runs", limit=1000))["runs"]}
        assert all(states[run["run_id"]] == "waiting" for run in waiting)
        await asyncio.gather(*(client.answer(run) for run in waiting))
        assert set(await client.ended(waiting)) <= {"you said yes"}


async def refuses(world: World) -> float:
    """Seconds until nobody new is let in."""
    began = time.monotonic()
    while time.monotonic() - began < 10:
        try:
            _, writer = await world.raw()
            writer.close()
        except (ConnectionRefusedError, ConnectionResetError):  # reset: it was in the queue of the listener
            break
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@pytest.mark.parametrize("seconds", [2.0, pytest.param(5.0, marks=pytest.mark.full)])
async def test_a_hanging_disk_is_reported_and_no_timer_is_lost(world: World, seconds: float) -> None:
    """Somebody else holds the file: questions are answered, health is degraded, and all goes on after it."""
    async with world.client() as client:
        assert (await client.get("/api/health"))["status"] == "ok"
        ringing = [await client.start("clock", input=seconds / 2) for _ in range(20)]
        with locked(world, seconds):
            starting = asyncio.create_task(client.start("hello", input="you", wait=True))
            told, taken = [], []
            while not starting.done():
                began = time.monotonic()
                told.append((await client.get("/api/health"))["status"])
                taken.append(time.monotonic() - began)
                await asyncio.sleep(0.05)
        assert "degraded" in told
        assert max(taken) < seconds * 0.75  # the disk hangs for longer
        assert (await starting)["result"] == "hello you"
        assert set(await client.ended(ringing)) == {"rang"}
        assert (await client.get("/api/health"))["status"] == "ok"
    second = World(world.folder)
    with pytest.raises(AssertionError, match="already"):
        second.start()


@contextlib.contextmanager
def locked(world: World, seconds: float) -> Any:
    """Hold the lock for writing for so long."""
    held = threading.Event()

    def hold() -> None:
        db = apsw.Connection(str(world.folder / ".nerve/nerve.db"))
        db.set_busy_timeout(10_000)
        db.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(seconds)
        db.execute("ROLLBACK")
        db.close()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait(10)
    yield
    holding.join()
