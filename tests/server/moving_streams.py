"""A client that reads the stream of all runs from one server after the other."""

import asyncio
from contextlib import aclosing

from server.processes import ServerProcess
from server.sse import stream

RUNS = 12
EVENTS_OF_RUN = 8
"""Events of a run until it asks its question."""
EVENTS_OF_SERVER = 3
"""Events that are read before the client moves on."""


async def check_moving_stream(servers: list[ServerProcess]) -> None:
    """Start runs, and read their events from server to server: each once, and none is missing."""
    clients = [server.client() for server in servers]
    seen: list[tuple[str, int]] = []
    ids: list[str] = []
    cursor: str | None = None
    started: list[str] = []

    async def start_runs() -> None:
        for number in range(RUNS):
            run = await clients[number % len(clients)].start(workflow="ask", label=f"moved-{number}")
            started.append(run.run_id)

    starting: asyncio.Task[None] | None = None
    async with asyncio.timeout(60):
        for turn in range(200):
            async with (
                servers[turn % len(servers)].http("read") as http,
                aclosing(stream(http, "/events", cursor)) as messages,
            ):
                received = 0
                async for message in messages:
                    cursor = message.id
                    starting = starting or asyncio.create_task(start_runs())
                    if message.kind in ("snapshot", "gap"):
                        assert turn == 0, message.kind
                        continue
                    seen.append((message.data["run_id"], message.data["seq"]))
                    ids.append(str(message.id))
                    received += 1
                    if received == EVENTS_OF_SERVER or is_complete(seen, started):
                        break
            if is_complete(seen, started):
                break
    assert starting is not None
    await starting
    assert len(ids) == len(set(ids)) == len(set(seen))
    for run_id in started:
        numbers = [seq for run, seq in seen if run == run_id]
        assert numbers == list(range(1, numbers[-1] + 1))
    for number, run_id in enumerate(started):
        await clients[number % len(clients)].stop(run=run_id)
    for client in clients:
        await client.close()


def is_complete(seen: list[tuple[str, int]], started: list[str]) -> bool:
    """Return whether all runs have started, and each of them asks its question."""
    last = dict(seen)
    return len(started) == RUNS and all(last.get(run, 0) >= EVENTS_OF_RUN for run in started)
