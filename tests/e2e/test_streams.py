"""Streams at a real server: nothing is missed, nothing seen is lost, and nobody who is slow is waited for."""

import asyncio
import contextlib
import json
import random
import socket
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import httpx2
import pytest

from e2e.streams import cut, events_of
from e2e.world import Asking, World, ask, tell, until
from nerve.api.event_hub import MAX_REPLAYABLE_EVENTS
from server.sse import Message, messages, stream

FLOW = 25_000
"""Events of one run; a journal may have twice as many."""


# -- those who are slow --------------------------------------------------------------------------------


async def slow_reader(world: World, path: str) -> tuple[socket.socket, bytes]:
    """One who asks for a stream, sees the beginning, and from then on reads only when he is told to."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(reader, ("127.0.0.1", world.port))
    await loop.sock_sendall(reader, world.head(f"GET {path} HTTP/1.1", "Connection: close"))
    text = b""
    while b"event: snapshot" not in text:
        text += await loop.sock_recv(reader, 2**10)
    return reader, text


async def a_byte_a_second(reader: socket.socket) -> bytes:
    """What was read when somebody has had enough of it."""
    text = b""
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            text += await asyncio.get_running_loop().sock_recv(reader, 1)
            await asyncio.sleep(1)
    return text


async def the_rest(reader: socket.socket) -> bytes:
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
    text = b""
    async with asyncio.timeout(30):
        while part := await asyncio.get_running_loop().sock_recv(reader, 2**16):
            text += part
    return text


def unchunked(text: bytes) -> str:
    """The body of a reply that came in chunks, as far as it came."""
    rest, whole = text.partition(b"\r\n\r\n")[2], b""
    while rest not in (b"", b"0\r\n\r\n"):
        size, _, rest = rest.partition(b"\r\n")
        whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole.decode()


async def flowed(client: Asking, runs: int, events: int) -> float:
    """Events a second of runs that say much."""
    began = time.monotonic()
    for _ in range(runs):
        run = await client.start("chatty", input={"events": events}, wait=True)
        assert run["state"] == "completed"
    return runs * events / (time.monotonic() - began)


@pytest.mark.parametrize(
    ("rounds", "runs", "events"), [(1, 1, 4000), pytest.param(5, 4, FLOW, marks=pytest.mark.full)]
)
async def test_a_slow_subscriber_is_disconnected_without_slowing_others(
    world: World, rounds: int, runs: int, events: int
) -> None:
    """While he reads a byte a second, as much happens as without him; then he is told that he lags.

    Throughput is judged in the full figures only: 100,000 events with him and without him in turns.
    """
    with_him, without = [], []
    async with world.client() as client:
        async with aclosing(stream(client.http, "/events")) as read:  # from here on runs are told of
            await anext(read)
        await flowed(client, 1, events)
        before = world.rss()
        for _ in range(rounds):
            without.append(await flowed(client, runs, events))
            reader, text = await slow_reader(world, "/events")
            reading = asyncio.create_task(a_byte_a_second(reader))
            with_him.append(await flowed(client, runs, events))
            reading.cancel()
            grown = world.rss() - before
            text += await reading
            told = messages(unchunked(text + await the_rest(reader)))
            reader.close()
            assert told[-1].kind == "lagged"
            last = [each.id for each in told if each.kind != "lagged"][-1]
            assert told[-1].id == told[-1].data["last"] == last
            assert len(told) < 1000 + 2**20 // 100
        share = max(with_him) / max(without)
        tell(events=rounds * runs * events, share=share, rate=max(with_him), grown_mb=grown)
        assert grown < 20
        assert rounds == 1 or share >= 0.95


async def test_a_slow_subscriber_of_large_events_is_disconnected_within_a_byte_limit(world: World) -> None:
    """What is kept for one reader is bounded in bytes, too."""
    async with world.client() as client:
        reader, text = await slow_reader(world, "/events")
        run = await client.start("chatty", input={"events": 400, "bytes": 100_000}, wait=True)
        assert run["state"] == "completed"
        text += await the_rest(reader)
        reader.close()
        told = messages(unchunked(text))
        assert told[-1].kind == "lagged"
        assert sum(len(json.dumps(each.data)) for each in told) < 2 * 2**20


# -- those who come back -------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [60, pytest.param(1000, marks=pytest.mark.full)])
async def test_a_stream_cut_at_any_byte_delivers_each_event_once(shared: World, cuts: int) -> None:
    """Cut at random bytes and come back with the last number, again and again."""
    chance = random.Random(cuts)
    async with shared.client() as client:
        run = await client.start("chatty", input={"events": 100}, wait=True)
        path = f"/events/workflow/{run['run_id']}"
        whole = await events_of(client, run["run_id"])
        done = 0
        while done < cuts:
            seen: list[Message] = []
            while len(seen) < len(whole):
                last = seen[-1].id if seen else None
                told, over = await cut(client, path, last, chance.randrange(1, 20_000))
                done += not over
                seen += told
            assert seen == whole
    assert [int(each.id or 0) for each in whole] == list(range(1, len(whole) + 1))


async def test_the_stream_of_all_runs_reports_every_gap(world: World) -> None:
    """A mark of another server, or one of which too much was forgotten, is a gap with a snapshot."""
    async with world.client() as client:
        async with aclosing(stream(client.http, "/events")) as events:
            first = await anext(events)
        run = await client.start("chatty", input={"events": 50}, wait=True)
        async with aclosing(stream(client.http, "/events", first.id)) as events:
            seen = [await anext(events) for _ in range(52)]
        assert [each.data["seq"] for each in seen] == list(range(1, 53))
        await client.start("chatty", input={"events": MAX_REPLAYABLE_EVENTS}, wait=True)
        async with aclosing(stream(client.http, "/events", first.id)) as events:
            told = [await anext(events) for _ in range(2)]
        assert [each.kind for each in told] == ["gap", "snapshot"]
        assert told[0].data["oldest"] == told[1].id
    world.kill()
    world.start()
    async with world.client() as client, aclosing(stream(client.http, "/events", told[1].id)) as events:
        told = [await anext(events) for _ in range(2)]
        assert [each.kind for each in told] == ["gap", "snapshot"]
        assert run["run_id"] in {each["run_id"] for each in told[1].data["runs"]}


# -- what was seen is there ----------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.full)])
async def test_a_delivered_event_survives_a_kill(world: World, kills: int) -> None:
    """Twenty readers at a time, each a trial: what it saw last is in the journal."""
    chance, trials = random.Random(kills), 0
    for _ in range(kills):
        async with world.client() as client:
            runs = [await client.start("steps", input=500) for _ in range(20)]
            last = await seen_until_killed(world, client, runs, chance.randrange(1, 60))
        world.acked.seen += list(last.items())
        trials += len(last)
        world.start()
    tell(trials=trials, kills=kills)
    assert trials == kills * 20


async def seen_until_killed(
    world: World, client: Asking, runs: list[dict[str, Any]], enough: int
) -> dict[str, int]:
    """The number that each reader saw last; the server is killed when all have seen enough."""
    last: dict[str, int] = {run["run_id"]: 0 for run in runs}

    async def follow(run_id: str) -> None:
        with contextlib.suppress(httpx2.TransportError):
            async for each in stream(client.http, f"/events/workflow/{run_id}"):
                last[run_id] = int(each.id or 0)
                if min(last.values()) >= enough:
                    world.kill()

    await asyncio.gather(*(follow(run["run_id"]) for run in runs))
    assert world.process is None
    return last


# -- many who wait -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("streams", "sockets", "polls", "seconds"),
    [(25, 25, 10, 0.0), pytest.param(500, 500, 100, 60.0, marks=pytest.mark.full)],
)
async def test_many_idle_streams_receive_heartbeats(
    make: Callable[..., World], streams: int, sockets: int, polls: int, seconds: float
) -> None:
    """For a minute in the full figures, not for ten.

    Heartbeats come every 15 s, and whoever is gone without a word is forgotten within 60 s.
    """
    world = make()
    async with contextlib.AsyncExitStack() as open_ones, world.client(at_once=2000) as client:
        [run] = [await client.start("ask", wait=True)]
        texts = [bytearray() for _ in range(streams)]
        reading = [asyncio.create_task(heard(world, run["run_id"], text)) for text in texts]
        dialled = [
            await open_ones.enter_async_context(world.dial(ping_interval=None)) for _ in range(sockets)
        ]
        for each in dialled:
            assert (await ask(each, "subscribe", id="s", run=run["run_id"]))["result"] == {"done": True}
        waiting = [asyncio.create_task(client.start("ask", wait=True)) for _ in range(polls)]
        waiting += [asyncio.create_task(client.start("rest", input=seconds, wait=True))]
        await until(lambda: all(b"gate_waiting" in text for text in texts))
        await asyncio.gather(*waiting)
        assert all(text.count(b": heartbeat") >= seconds // 15 - 1 for text in texts)
        rss = world.rss()
        tell(connections=streams + sockets + polls, rss_mb=rss)
        assert rss <= 300
        await client.answer(run)
        await until(lambda: all(b"workflow_completed" in text for text in texts))
        await asyncio.gather(*reading)
        ended = await client.get("/api/health")
        assert ended["status"] == "ok"


async def heard(world: World, run: str, text: bytearray) -> None:
    reader, writer = await world.raw()
    writer.write(world.head(f"GET /events/workflow/{run} HTTP/1.1", "Connection: close"))
    while part := await reader.read(2**16):
        text += part
    writer.close()
