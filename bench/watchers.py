"""Watchers: processor time for a frame and a watcher of a run, beside a stream that encodes it for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from bench.measure import Line, at_most, measure_pair
from nerve import Session
from nerve.api import Api
from nerve.api.event_hub import EventFrame
from nerve.server.event_feed import Feed, RunFeed
from nerve.server.sse import EventSourceResponse, encode_flat_sse_event, encode_sse_batches
from nerve.store.port import EventRow

WATCHERS, EVENTS = 200, 100
EncodeFeed = Callable[[Feed], AsyncGenerator[bytes, None]]
DATA = '{"name": "review", "output": "' + "word " * 40 + '", "attributes": {"tokens": 812, "turns": 3}}'


def measure(rounds: int, directory: Path) -> list[Line]:
    def encode_shared(feed: Feed) -> AsyncGenerator[bytes, None]:
        return encode_sse_batches(feed, encode_flat_sse_event)

    pair = measure_pair(rounds, lambda: frame_cost_us(encode_shared), lambda: frame_cost_us(encode_for_each))
    ours, limit = pair.medians
    what = f"a frame for each of {WATCHERS} watchers of a run; a stream that encodes for each watcher"
    return [Line("watch", what, "us CPU", ours, limit, pair.ratio, at_most(pair.ratios, 0.5))]


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
        assert run is not None

        async def send(message: Any) -> None:
            nonlocal sent_count
            sent_count += message["type"] == "http.response.body"

        async def receive() -> Any:
            await closing.wait()
            return {"type": "http.disconnect"}

        async def watch() -> None:
            feed = (await RunFeed.open(api, started.run_id, "2")).messages()
            await EventSourceResponse(encode_feed(feed), closing, 15.0)({}, receive, send)

        watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
        await wait_for(lambda: len(api.hub._subscriptions) == WATCHERS)
        before, began = sent_count, time.process_time()
        for number in range(EVENTS):
            api.hub._publish(run, [EventRow(1000 + number, time.time(), "said", "/review", None, DATA)])
            await wait_for(lambda expected=before + (number + 1) * WATCHERS: sent_count == expected)
        elapsed = time.process_time() - began
        closing.set()
        await asyncio.gather(*watchers)
    return elapsed / (WATCHERS * EVENTS) * 1_000_000


async def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a pause would be measured, too
        await asyncio.sleep(0)
