"""Clients that do harm on purpose: each is sent away with a reason, and nobody else notices."""

import asyncio
import contextlib
import gzip
import os
import struct
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from e2e.conftest import closed
from e2e.world import World, ask, at_most, quantile, tell, until

HEAD_SECONDS = 2.0
"""In which a head must come, in these tests; it is 10 in earnest."""


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(
        tmp_path_factory.mktemp("troubled"), {"nerve.server.uvicorn_server.HEAD_TIMEOUT_S": HEAD_SECONDS}
    )
    (made.folder / ".nerve").mkdir()
    (made.folder / ".nerve/config.json").write_text('{"max_connections": 256}')
    made.start()
    yield made
    closed(made)


@contextlib.asynccontextmanager
async def unnoticed(world: World, grown: float = 20) -> AsyncIterator[None]:
    """Others are served meanwhile, and the server keeps nothing of what was done to it."""
    taken: list[float] = []

    async def others() -> None:
        async with world.client(at_once=1) as client:
            while True:
                began = time.monotonic()
                await client.start("hello", input="you", wait=True)
                taken.append(time.monotonic() - began)
                await asyncio.sleep(0.01)

    before = world.rss()
    asking = asyncio.create_task(others())
    await until(lambda: taken)
    try:
        yield
        assert not asking.done(), asking.exception()
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    tell(others=len(taken), p99=quantile(taken, 0.99), grown_mb=world.rss() - before)
    assert world.rss() - before <= grown
    assert quantile(taken, 0.9) < 3  # seconds; an attack that works takes all of them


# -- WebSockets ----------------------------------------------------------------------------------------


def frame(opcode: int, data: bytes, last: bool = True) -> bytes:
    """A frame of a client, by hand; its mask is of zeros."""
    size = len(data)
    head = bytes([opcode | (0x80 if last else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 2**16:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    return head + bytes(4) + data


TEXT, CONTINUED, PING = 1, 0, 9
REFUSED = b"not_found"


async def upgraded(world: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await world.raw()
    writer.write(
        world.head(
            "GET /ws HTTP/1.1",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def poured(writer: asyncio.StreamWriter, piece: bytes, times: int) -> None:
    """Send something again and again, as fast as it is taken."""
    with contextlib.suppress(ConnectionError):
        for _ in range(max(1, times // 1000)):
            writer.write(piece * min(times, 1000))
            await writer.drain()


async def close_code(reader: asyncio.StreamReader) -> int:
    """The code with which the server closes; what it says before is not looked at."""
    async with asyncio.timeout(60):
        while True:
            opcode, size = await reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await reader.readexactly(2))
            data = await reader.readexactly(size)
            if opcode & 15 == 8:
                return int.from_bytes(data[:2])


@pytest.mark.parametrize(
    ("piece", "times", "code"),
    [
        (frame(TEXT, b"x" * (17 * 2**20)), 1, 1009),
        (frame(TEXT, b'{"op": "\xff\xfe"}'), 1, 1007),
        (frame(3, b""), 1, 1002),
        (frame(TEXT, b'"', last=False) + frame(CONTINUED, b"x", last=False) * 2_000_000, 1, 1009),
    ],
    ids=["17 MiB", "no UTF-8", "no opcode", "2 million fragments"],
)  # fmt: skip
async def test_a_protocol_violation_closes_the_websocket_with_a_code(
    troubled: World, piece: bytes, times: int, code: int
) -> None:
    async with unnoticed(troubled):
        reader, writer = await upgraded(troubled)
        pouring = asyncio.create_task(poured(writer, piece, times))
        assert await close_code(reader) == code
        writer.close()
        await asyncio.gather(pouring, return_exceptions=True)


@pytest.mark.parametrize("number", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "piece", [frame(PING, b"x"), frame(TEXT, b'{"op": "x"}')], ids=["pings", "tiny messages"]
)
async def test_a_flood_without_reading_replies_is_throttled(
    troubled: World, piece: bytes, number: int
) -> None:
    """Whoever does not read is not read either: nothing piles up, and he is gone when he leaves."""
    async with unnoticed(troubled):
        _, writer = await upgraded(troubled)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                await poured(writer, piece, number)
        writer.transport.abort()


@pytest.mark.parametrize("number", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
async def test_a_flood_of_tiny_messages_is_answered(troubled: World, number: int) -> None:
    async with unnoticed(troubled):
        reader, writer = await upgraded(troubled)
        pouring = asyncio.create_task(poured(writer, frame(TEXT, b'{"op": "x"}'), number))
        told, before = 0, b""
        async with asyncio.timeout(600):
            while told < number:
                data = await reader.read(2**20)
                assert data, "closed"
                told += (before + data).count(REFUSED)
                before = (before + data)[1 - len(REFUSED) :]
        await pouring
        writer.transport.abort()


async def test_an_aborted_connection_is_cleaned_up(troubled: World) -> None:
    async with unnoticed(troubled), troubled.client() as client:
        run = await client.start("ask", wait=True)
        before = connections(troubled)
        for _ in range(20):
            socket = await troubled.dial()
            await ask(socket, "subscribe", id="s", run=run["run_id"])
            socket.transport.abort()
        await until(lambda: connections(troubled) <= before + 1)


def connections(world: World) -> int:
    names = [os.readlink(each) for each in Path(f"/proc/{world.pid}/fd").iterdir() if each.is_symlink()]
    return sum(name.startswith("socket:") for name in names)


# -- HTTP ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [60, pytest.param(200, marks=pytest.mark.full)])
async def test_slow_request_heads_do_not_block_others(troubled: World, number: int) -> None:
    async def slow() -> bytes:
        reader, writer = await troubled.raw()
        head = troubled.head("GET /api/runs HTTP/1.1")
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            for byte in head[:200]:
                writer.write(bytes([byte]))
                await writer.drain()
                if writer.is_closing() or reader.at_eof() or reader._buffer:  # type: ignore[attr-defined]
                    break
                await asyncio.sleep(0.2)
            return (await reader.read())[:12]
        return b""

    async with unnoticed(troubled):
        began = time.monotonic()
        told = await asyncio.gather(*(slow() for _ in range(number)))
        assert set(told) == {b"HTTP/1.1 408"}
        assert time.monotonic() - began < HEAD_SECONDS + 5


HUGE = "Content-Length: 5000000000"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
BLANK = b" " * 2**16
CHUNK = b"10000\r\n" + BLANK + b"\r\n"
BOMB = gzip.compress(bytes(50_000_000))
PACKED = ["Content-Encoding: gzip", JSON, f"Content-Length: {len(BOMB)}"]
ENDLESS = 2**12

WRONG: list[tuple[str, list[str], bytes, int, str, str | None]] = [
    ("5 GB", [HUGE, JSON], BLANK, ENDLESS, "413", "admin"),
    ("5 GB, no token", [HUGE, JSON], BLANK, ENDLESS, "401", None),
    ("endless", [CHUNKED, JSON], CHUNK, ENDLESS, "413", "admin"),
    ("endless, no token", [CHUNKED, JSON], CHUNK, ENDLESS, "401", None),
    ("bad chunks", [CHUNKED, JSON], b"zz\r\n\r\n", 1, "400", "admin"),
    ("bad chunks, no token", [CHUNKED, JSON], b"zz\r\n\r\n", 1, "401 400", None),
    ("gzip bomb", PACKED, BOMB, 1, "400 415", "admin"),
    ("two lengths", ["Content-Length: 1", "Content-Length: 2", JSON], b"{}", 1, "400", "admin"),
    ("a length and chunks", ["Content-Length: 2", CHUNKED, JSON], b"zz\r\n\r\n", 1, "400", "admin"),
    ("10,000 headers", [f"X-{n}: {n}" for n in range(10_000)], b"", 0, "400", "admin"),
    ("a long header", [f"X: {'x' * 200_000}"], b"", 0, "400", "admin"),
    ("a line in a header", ["X: a\rb: c"], b"", 0, "400", "admin"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_", "head", "body", "times", "statuses", "token"), WRONG, ids=[each[0] for each in WRONG]
)
async def test_an_invalid_request_is_refused_before_its_body_is_read(
    troubled: World, _: str, head: list[str], body: bytes, times: int, statuses: str, token: str | None
) -> None:
    """The reply comes while the body, if there is one, still does; a small part of that is taken."""
    reader, writer = await troubled.raw()
    before, sent = troubled.rss(), 0
    writer.write(troubled.head("POST /api/runs HTTP/1.1", *head, token=token))

    async def sending() -> None:
        nonlocal sent
        with contextlib.suppress(ConnectionError):
            while sent < times:
                writer.write(body)
                await writer.drain()
                await asyncio.sleep(0)  # whoever only speaks does not hear the answer
                sent += 1

    pouring = asyncio.create_task(sending())
    try:
        async with asyncio.timeout(20):
            line = await reader.readline()
            await pouring
    finally:
        writer.transport.abort()
    assert line.decode().split(" ")[1] in statuses.split(), line
    assert sent < ENDLESS // 4
    assert troubled.rss() - before <= 20


async def test_excess_connections_are_refused_and_existing_ones_are_served(
    troubled: World,
) -> None:
    async with troubled.client(at_once=1) as client:
        await client.start("hello", wait=True)
        opened = await at_most(50, [troubled.raw] * 300)
        told = await asyncio.gather(*(asyncio.wait_for(reader.read(), 20) for reader, _ in opened))
        for _, writer in opened:
            writer.close()
        statuses = {text[9:12] for text in told}
        assert b"503" in statuses
        assert statuses <= {b"503", b"408"}
        assert (await client.start("hello", input="you", wait=True))["result"] == "hello you"
