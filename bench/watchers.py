"""Watchers: processor time for a frame and a watcher of a run, beside a stream that encodes it for each."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.http import Server
from bench.measure import Line, at_most, measure_pair
from nerve import Session
from nerve.api import Api
from nerve.api.event_hub import EventFrame, EventHub
from nerve.server.event_feed import Feed, RunFeed
from nerve.server.sse import EventSourceResponse, encode_flat_sse_event, encode_sse_batches
from nerve.store.port import EventRow

WATCHERS, EVENTS = 200, 100
CONNECTIONS = 2000
"""Connections to a server in another process that watch one run."""
ASK_WORKFLOW = "name: ask\nbody: {kind: gate, id: approve, prompt: Go on?}\n"
EncodeFeed = Callable[[Feed], AsyncGenerator[bytes, None]]
DATA = '{"name": "review", "output": "' + "word " * 40 + '", "attributes": {"tokens": 812, "turns": 3}}'


def measure(rounds: int, directory: Path) -> list[Line]:
    def encode_shared(feed: Feed) -> AsyncGenerator[bytes, None]:
        return encode_sse_batches(feed, encode_flat_sse_event)

    pair = measure_pair(rounds, lambda: frame_cost_us(encode_shared), lambda: frame_cost_us(encode_for_each))
    ours, limit = pair.medians
    what = f"a frame for each of {WATCHERS} watchers of a run; a stream that encodes for each watcher"
    return [
        Line("watch", what, "us CPU", ours, limit, pair.ratio, at_most(pair.ratios, 0.5)),
        measure_connections(directory),
    ]


async def encode_for_each(feed: Feed) -> AsyncGenerator[bytes, None]:
    """Encode every event again for this watcher."""
    async for messages in feed:
        for message in messages:
            assert isinstance(message.data, EventFrame)
            yield encode_flat_sse_event(EventFrame(message.data.event), message.cursor or "")


def frame_cost_us(encode_feed: EncodeFeed) -> float:
    return asyncio.run(measure_frame_cost(encode_feed))


async def measure_frame_cost(encode_feed: EncodeFeed) -> float:
    """Return the microseconds of processor time for one event and one watcher that keeps up."""
    async with Session() as session:

        @session.workflow
        async def ask(ctx: Any) -> Any:
            return await ctx.gate("Go on?")

        api, closing, sent_count = Api(session), asyncio.Event(), 0
        started: Any = await api.perform("start", {"workflow": "ask", "wait": True})
        run = session.get_workflow_run(started.run_id)
        hub = api.hub
        assert run is not None
        assert isinstance(hub, EventHub)

        async def send(message: Any) -> None:
            nonlocal sent_count
            sent_count += message["type"] == "http.response.body"

        async def receive() -> Any:
            await closing.wait()
            return {"type": "http.disconnect"}

        async def watch() -> None:
            feed = (await RunFeed.open(api, started.run_id, "2")).messages()
            await EventSourceResponse(encode_feed(feed), closing, 15.0)({}, receive, send)

        def has_sent(count: int) -> bool:
            return sent_count >= count

        watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
        await wait_for(lambda: len(hub._subscriptions) == WATCHERS)
        before, began = sent_count, time.process_time()
        for number in range(EVENTS):
            hub._publish(run, [EventRow(1000 + number, time.time(), "said", "/review", None, DATA)])
            await wait_for(partial(has_sent, before + (number + 1) * WATCHERS))
        elapsed = time.process_time() - began
        closing.set()
        await asyncio.gather(*watchers)
    return elapsed / (WATCHERS * EVENTS) * 1_000_000


async def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a pause would be measured, too
        await asyncio.sleep(0)


def measure_connections(directory: Path) -> Line:
    """Return the processor time of a server for one event on one of many open connections."""
    project = directory / "watched"
    (project / ".nerve/workflows").mkdir(parents=True)
    (project / ".nerve/workflows/ask.yaml").write_text(ASK_WORKFLOW)
    with run_project_server(project) as (server, process_id):
        seconds, bytes_used = asyncio.run(watch_with_connections(server, process_id))
    what = f"an event on each of {CONNECTIONS} connections to a server, {bytes_used / 1024:.0f} KiB for each"
    return Line("watch", what, "us CPU", seconds * 1e6)


@contextmanager
def run_project_server(project: Path) -> Iterator[tuple[Server, int]]:
    command = [sys.executable, "-m", "nerve", "serve", "--port", "0", "--json", "--quiet"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        address = urlsplit(ready["url"])
        token = Path(ready["token_file"]).read_text().strip()
        try:
            yield Server(str(address.hostname), address.port or 0, token), process.pid
        finally:
            process.terminate()


async def watch_with_connections(server: Server, process_id: int) -> tuple[float, float]:
    """Return the seconds of processor time for a frame, and the bytes of memory of a connection."""
    run = json.loads(await request(server, "POST", "/api/runs", {"workflow": "ask", "wait": True}))
    memory_before = memory_bytes(process_id)
    path = f"/events/workflow/{run['run_id']}"
    connections = [await open_stream(server, path) for _ in range(CONNECTIONS)]
    memory = (memory_bytes(process_id) - memory_before) / CONNECTIONS
    before = cpu_seconds(process_id)
    await request(server, "POST", "/api/answers", {"run": run["run_id"], "answer": "yes"})
    streams = await asyncio.gather(*(reader.read() for reader, _ in connections))
    elapsed = cpu_seconds(process_id) - before
    frames = sum(stream.count(b"event: ") for stream in streams)
    for _, writer in connections:
        writer.close()
    if not all(b"event: workflow_completed\n" in stream for stream in streams):
        raise RuntimeError("a connection missed the last event of the run")
    return elapsed / frames, memory


async def open_stream(server: Server, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and read the events that the run already has."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=2**20)
    writer.write(request_head(server, "GET", path) + b"\r\n")
    await reader.readuntil(b"event: gate_waiting\n")
    return reader, writer


async def request(server: Server, method: str, path: str, fields: dict[str, Any]) -> bytes:
    """Send one request and return the body of its response."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    body = json.dumps(fields).encode()
    head = request_head(server, method, path)
    writer.write(head + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    response = await reader.read()
    writer.close()
    if not response.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(response.decode())
    return response.partition(b"\r\n\r\n")[2]


def request_head(server: Server, method: str, path: str) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
        f"Authorization: Bearer {server.token}\r\nContent-Type: application/json\r\n"
    ).encode()


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
