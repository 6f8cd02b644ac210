"""Load: runs that start, steps that work, open gates and readers, all at the same time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from e2e.world import Asking, World, at_most, quantile, tell


@dataclass(frozen=True)
class Load:
    """How much of it."""

    seconds: float
    starts: int
    """Runs that are started in a second."""
    steps: int
    gates: int
    readers: int


@dataclass
class Seen:
    """What came of it: how long each request took, and what each reader was told."""

    taken: list[float] = field(default_factory=list)
    rss: list[tuple[float, float]] = field(default_factory=list)
    events: int = 0
    errors: list[str] = field(default_factory=list)

    async def timed(self, asking: Awaitable[Any]) -> Any:
        began = time.monotonic()
        try:
            return await asking
        except Exception as error:
            self.errors.append(repr(error))
        finally:
            self.taken.append(time.monotonic() - began)


LITTLE = Load(3, 20, 10, 50, 10)
ALL = Load(600, 100, 50, 1000, 100)


@pytest.mark.parametrize("load", [LITTLE, pytest.param(ALL, marks=pytest.mark.full)], ids=["little", "all"])
async def test_a_server_under_load_is_fast_and_its_memory_stays_flat(world: World, load: Load) -> None:
    """99 of 100 requests take at most 250 ms, none fails, and memory grows by at most 1 MiB in a minute.

    For ten minutes in the full figures. Of ten readers one follows all runs and nine follow one.
    Memory is looked at in the second half, and in the full figures only.
    """
    seen, over = Seen(), asyncio.Event()
    async with world.client(at_once=64) as client, world.client(at_once=load.steps) as others:
        if load is ALL:  # what is remembered of so many runs and no more is full by then
            await at_most(32, [lambda: client.start("hello", input="you")] * 9000)
        gates = await at_most(32, [lambda: client.start("ask", wait=True)] * load.gates)
        working = [
            asyncio.create_task(follow(world, "" if n % 10 == 0 else gates[-n]["run_id"], seen, over))
            for n in range(load.readers)
        ]
        working += [asyncio.create_task(step(others, over)) for _ in range(load.steps)]
        working += [asyncio.create_task(look(client, gates, seen, over))]
        working += [asyncio.create_task(measure(world, seen, over))]
        await starts(client, load, seen)
        over.set()
        await asyncio.gather(*working)
        waiting = (await client.get("/api/gates"))["gates"]
        assert len(waiting) == load.gates - ANSWERED
    p99, busy = quantile(seen.taken, 0.99), world.cpu()
    grown = slope(seen.rss)
    tell(
        requests=len(seen.taken),
        p50=quantile(seen.taken, 0.5),
        p99=p99,
        events=seen.events,
        mb_a_minute=grown,
        cpu=busy,
    )
    assert seen.errors == []
    # The small figures run beside other tests, which take their share of the time.
    assert p99 <= (0.25 if load is ALL else 2.5)
    assert load is LITTLE or grown <= 1


async def test_long_lived_objects_are_excluded_from_garbage_collection(shared: World) -> None:
    """All of it, again and again, takes so long that everybody notices."""
    async with shared.client() as client:
        assert (await client.start("frozen", wait=True))["result"] > 10_000


ANSWERED = 5


async def starts(client: Asking, load: Load, seen: Seen) -> None:
    """So many a second, whether those before are done or not."""
    begun: set[asyncio.Task[Any]] = set()
    first = time.monotonic()
    for number in range(int(load.seconds * load.starts)):
        await asyncio.sleep(max(0.0, first + number / load.starts - time.monotonic()))
        begun.add(asyncio.create_task(seen.timed(client.start("hello", input="you"))))
        begun = {each for each in begun if not each.done()}
    await asyncio.gather(*begun)


async def step(client: Asking, over: asyncio.Event) -> None:
    """One step after the other, each of which takes half a second."""
    while not over.is_set():
        await client.start("rest", input=0.5, wait=True)


async def look(client: Asking, gates: list[dict[str, Any]], seen: Seen, over: asyncio.Event) -> None:
    """What people do meanwhile: look at the runs, at one, and answer now and then."""
    for run in gates[:ANSWERED]:
        await seen.timed(client.answer(run))
    questions: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.get("/api/runs", limit=20),
        lambda: client.run(gates[-1]),
        lambda: client.get(f"/api/runs/{gates[-1]['run_id']}/events"),
    ]
    while not over.is_set():
        for question in questions:
            await seen.timed(question())
        await asyncio.sleep(0.1)


class Reader(asyncio.Protocol):
    """One who follows a stream, and costs no more than he must: there are a hundred in this process."""

    def __init__(self, request: bytes, seen: Seen) -> None:
        self.request, self.seen = request, seen
        self.left = False

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.seen.events += data.count(b"event: ")
        if b"event: lagged" in data:
            self.seen.errors.append("a reader was cut off")

    def connection_lost(self, error: Exception | None) -> None:
        if not self.left:
            self.seen.errors.append(f"a stream ended: {error}")


async def follow(world: World, run: str, seen: Seen, over: asyncio.Event) -> None:
    path = f"/events/workflow/{run}" if run else "/events"
    request = world.head(f"GET {path} HTTP/1.1")
    loop = asyncio.get_running_loop()
    transport, reader = await loop.create_connection(lambda: Reader(request, seen), "127.0.0.1", world.port)
    await over.wait()
    reader.left = True
    transport.abort()


async def measure(world: World, seen: Seen, over: asyncio.Event) -> None:
    while not over.is_set():
        seen.rss.append((time.monotonic(), world.rss()))
        await asyncio.sleep(0.5)


def slope(seen: list[tuple[float, float]]) -> float:
    """Megabytes a minute, by least squares over the second half."""
    late = seen[len(seen) // 2 :]
    if len(late) < 2:
        return 0.0
    middle = sum(at for at, _ in late) / len(late), sum(mb for _, mb in late) / len(late)
    spread = sum((at - middle[0]) ** 2 for at, _ in late)
    return 60 * sum((at - middle[0]) * (mb - middle[1]) for at, mb in late) / spread
