"""Subscriptions to the hub: history, then live events, in order and once each; lagging ones are dropped."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from api.support import refusal
from nerve.api import Api, event_hub
from nerve.api.event_hub import (
    MAX_QUEUED_BYTES,
    MAX_QUEUED_EVENTS,
    EventFrame,
    EventSubscription,
    merge_output_chunks,
)
from nerve.client import Client
from nerve.core.events import MAX_SHOWN_CHARS, WorkflowEvent


async def collected(events: Any) -> list[Any]:
    return [event async for event in events]


@pytest.fixture
def steps(api: Api) -> asyncio.Queue[int | None]:
    """Define a workflow `stepping` that emits as many events as each number in the returned queue says."""
    queue: asyncio.Queue[int | None] = asyncio.Queue()

    @api.session.node
    async def next_step(context: Any) -> Any:
        return await queue.get()

    @api.session.workflow
    async def stepping(ctx: Any) -> int:
        count = 0
        while (more := (await ctx.run("next_step")).output) is not None:
            for _ in range(more):
                count += 1
                ctx.emit("ping", {"n": count})
        return count

    return queue


async def test_history_precedes_live_events_in_order_and_without_duplicates(
    api: Api, steps: asyncio.Queue[int | None]
) -> None:
    run = await api.start(workflow="stepping")
    seen: list[Any] = []
    steps.put_nowait(5)
    async for event in api.hub.watch(run.run_id):
        seen.append(event)
        if event.data.get("n") == 5:
            steps.put_nowait(5)
        if event.data.get("n") == 10:
            steps.put_nowait(None)
    everything = (await api.events(run=run.run_id)).events
    assert seen == everything
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))


async def test_events_during_the_reading_of_history_are_not_lost_even_if_the_run_ends(
    api: Api, steps: asyncio.Queue[int | None]
) -> None:
    run = await api.start(workflow="stepping")
    steps.put_nowait(3)
    watching = api.hub.watch(run.run_id)
    first = await anext(watching)
    steps.put_nowait(3)
    steps.put_nowait(None)
    assert await api.session.get_workflow_run(run.run_id).wait() == 6
    seen = [first, *await asyncio.wait_for(collected(watching), 10)]
    assert seen == (await api.events(run=run.run_id)).events


async def test_watching_continues_after_a_number(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    all_of_it = (await api.events(run=run.run_id)).events
    for after in range(len(all_of_it) + 1):
        watching = api.hub.watch(run.run_id[:30], after)
        seen = [await anext(watching) for _ in all_of_it[after:]]
        assert seen == all_of_it[after:]
        await watching.aclose()
    watching = asyncio.ensure_future(collected(api.hub.watch(run.run_id, len(all_of_it))))
    await asyncio.sleep(0)
    await api.answer(run=run.run_id, answer="yes")
    assert [event.event_type for event in await watching] == ["gate_answered", "workflow_completed"]


async def test_a_finished_run_has_only_history(api: Api) -> None:
    run = await api.start(workflow="hello", wait=True)
    seen = await collected(api.hub.watch(run.run_id))
    assert [event.event_type for event in seen] == ["workflow_started", "workflow_completed"]
    assert await collected(api.hub.watch(run.run_id, seen[-1].seq)) == []
    assert (await refusal(collected(api.hub.watch("nobody")))).code == "not_found"


async def test_without_a_run_all_runs_are_watched_from_now_on(api: Api) -> None:
    await api.start(workflow="hello", wait=True)
    watching = api.hub.watch()
    next_one = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    runs = [await api.start(workflow="hello", wait=True) for _ in range(3)]
    seen = [await next_one, *[await anext(watching) for _ in range(5)]]
    assert [event.run_id for event in seen] == [run.run_id for run in runs for _ in range(2)]
    await watching.aclose()


async def test_a_lagging_subscriber_is_dropped_and_the_others_are_not(
    api: Api, steps: asyncio.Queue[int | None]
) -> None:
    run = await api.start(workflow="stepping")
    slow = api.hub.watch(run.run_id)
    first = await anext(slow)
    steps.put_nowait(MAX_QUEUED_EVENTS // 2)
    quick: list[int] = []
    async for event in api.hub.watch(run.run_id):
        quick.append(event.seq)
        if event.data.get("n", 1) % (MAX_QUEUED_EVENTS // 2) == 0:
            steps.put_nowait(MAX_QUEUED_EVENTS // 2 if event.data["n"] < 2 * MAX_QUEUED_EVENTS else None)
    assert quick == list(range(1, (await api.run(run=run.run_id)).last_seq + 1))
    assert len(quick) > 2 * MAX_QUEUED_EVENTS
    last = first.seq

    async def read_on() -> None:
        nonlocal last
        async for event in slow:
            assert event.seq == last + 1
            last = event.seq

    error = await refusal(read_on())
    assert (error.code, error.message) == ("conflict", "lagged: too many events at once")
    rest = await collected(api.hub.watch(run.run_id, last))
    assert [event.seq for event in rest] == list(range(last + 1, rest[-1].seq + 1))


async def test_a_closed_subscription_is_removed(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    watching = asyncio.ensure_future(collected(api.hub.watch(run.run_id, 2)))
    await asyncio.sleep(0)
    assert len(api.hub._subscriptions) == 1
    watching.cancel()
    await asyncio.wait([watching])
    assert api.hub._subscriptions == set()


async def test_a_subscriber_queue_is_limited_in_bytes() -> None:
    event = WorkflowEvent("r", "w", "said", {"text": "x"}, seq=1)
    watcher = EventSubscription(None)
    large = EventFrame(event, 1, 5 * MAX_QUEUED_BYTES)
    watcher.push(large)
    assert await watcher.next_frames() == [large]  # a single event is delivered whatever its size
    for number in range(4):
        watcher.push(EventFrame(event, number, MAX_QUEUED_BYTES // 4))
    assert (watcher.queued_bytes, watcher.has_lagged) == (MAX_QUEUED_BYTES, False)
    assert len(await watcher.next_frames()) == 1
    watcher.push(EventFrame(event, 5, MAX_QUEUED_BYTES // 4))
    watcher.push(EventFrame(event, 6, 1))
    assert (watcher.queued_bytes, watcher.has_lagged, len(watcher.queue)) == (0, True, 0)
    assert (await refusal(watcher.next_frames())).code == "conflict"


async def test_a_long_history_is_read_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is queued for a subscriber that still reads the history."""
    monkeypatch.setattr(event_hub, "HISTORY_PAGE_SIZE", 10)

    @api.session.workflow
    async def chatty(ctx: Any) -> None:
        for number in range(100):
            ctx.emit("said", {"number": number})

    run = await api.start(workflow="chatty", wait=True)
    watching = api.hub.watch(run.run_id)
    seen = [(await anext(watching)).seq for _ in range(5)]
    assert api.hub._subscriptions == set()
    seen += [event.seq async for event in watching]
    assert seen == list(range(1, 103))
    behind = [event.seq async for event in api.hub.watch(run.run_id, 50)]
    assert behind == list(range(51, 103))
    assert [e.seq for e in (await api.events(run=run.run_id, after=50, limit=3)).events] == [51, 52, 53]
    assert (await api.events(run=run.run_id, after=50, limit=3)).more
    assert not (await api.events(run=run.run_id, after=99, limit=3)).more


@pytest.mark.requirement("S1-36")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("by_parent", [False, True])
async def test_gate_events_of_child_runs_are_in_the_stream_of_their_parent(
    api: Api, late: bool, by_parent: bool
) -> None:
    @api.session.workflow
    async def twice(ctx: Any) -> Any:
        return [await ctx.run_workflow("nested") for _ in range(2)]

    run = await api.start(workflow="twice", wait=late)
    seen = []
    async for event in api.hub.watch(run.run_id):
        seen.append(event)
        if event.event_type == "gate_waiting":
            assert event.run_id != run.run_id
            watched_run = run.run_id if by_parent else event.run_id
            await api.answer(run=watched_run, gate=event.data["gate_id"], answer="yes")
    assert seen[-1].data["result"] == ["yes", "yes"]
    gates = [event for event in seen if event.event_type.startswith("gate_")]
    assert [event.event_type for event in gates] == ["gate_waiting", "gate_answered"] * 2
    shown = [event.data["shown_in"] for event in gates[::2]]
    assert shown == [{"run_id": run.run_id, "path": f"/nested{n}/ask/gate"} for n in ("", "[2]")]
    assert [event.path for event in gates] == ["/gate"] * 4
    own = [event for event in seen if event.run_id == run.run_id]
    assert own == (await api.events(run=run.run_id)).events


async def test_the_client_reconnects_to_a_stream_with_gates_of_child_runs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "MAX_QUEUED_EVENTS", 1)

    @api.session.workflow
    async def both(ctx: Any) -> Any:
        for number in range(20):
            ctx.emit("ping", {"n": number})
        answer = await ctx.run_workflow("ask")
        for number in range(20, 40):
            ctx.emit("ping", {"n": number})
        return answer

    run = await api.start(workflow="both", wait=True)
    seen = []
    async with aclosing(Client(api).watch(run.run_id)) as events:
        async for event in events:
            seen.append(event)
            if event.event_type == "gate_waiting":
                await api.answer(run=run.run_id, gate=event.data["gate_id"], answer="yes")
    own = [event for event in seen if event.run_id == run.run_id]
    assert own == (await api.events(run=run.run_id)).events


def chunk(number: int, text: Any, path: str = "/sh", stream: str = "stdout", **more: Any) -> EventFrame:
    data = {"stream": stream, "text": text, **more}
    return EventFrame(WorkflowEvent("r", "w", "output_chunk", data, seq=number, path=path), number, 10)


def test_queued_output_chunks_of_one_stream_are_merged_in_order() -> None:
    other = EventFrame(WorkflowEvent("r", "w", "log", {"text": "x"}, seq=4), 4)
    frames = [
        *(chunk(number, str(number)) for number in (1, 2, 3)),
        other,
        chunk(5, "5"),
        chunk(6, "6", stream="stderr"),
        chunk(7, "7", stream="stderr"),
        chunk(8, "8", path="/other", stream="stderr"),
        chunk(9, "9", stream="assistant"),
        chunk(10, "10", stream="assistant"),
        chunk(11, "11", cut_characters=3),
        chunk(12, "12", cut_characters=3),
        chunk(13, 13),
        chunk(14, 14),
    ]
    merged = merge_output_chunks(frames)
    shown = [(frame.number, frame.event.seq, frame.event.data["text"]) for frame in merged]
    assert shown == [
        (3, 3, "123"),
        (4, 4, "x"),
        (5, 5, "5"),
        (7, 7, "67"),
        (8, 8, "8"),
        *((number, number, str(number)) for number in (9, 10, 11, 12)),
        (13, 13, 13),
        (14, 14, 14),
    ]
    assert merged[1] is other
    assert merge_output_chunks(frames)[0] is merged[0], "all watchers with the same queue share the frame"


def test_a_merged_chunk_is_not_longer_than_an_event_may_be() -> None:
    half = "x" * (MAX_SHOWN_CHARS // 2)
    merged = merge_output_chunks([chunk(number, half) for number in range(1, 6)])
    assert [len(frame.event.data["text"]) for frame in merged] == [2 * len(half), 2 * len(half), len(half)]


async def test_a_watcher_that_lags_gets_few_events_with_the_whole_output(api: Api) -> None:
    ready = asyncio.Event()

    @api.session.node
    async def talk(context: Any) -> str:
        await ready.wait()
        for number in range(500):
            context.emit("output_chunk", {"stream": "stdout", "text": f"{number}\n"})
            if number % 100 == 0:
                await asyncio.sleep(0)
        return "done"

    @api.session.workflow
    async def talking(ctx: Any) -> Any:
        return (await ctx.run("talk")).output

    run = await api.start(workflow="talking")
    watching = [asyncio.ensure_future(collected(api.hub.watch_run(run.run_id))) for _ in range(3)]
    while len(api.hub._subscriptions) < 3:  # noqa: ASYNC110 - nothing tells when a watcher has subscribed
        await asyncio.sleep(0)
    ready.set()
    for batches in await asyncio.gather(*watching):
        chunks = [frame.event for frames in batches for frame in frames if frame.event.path == "/talk"]
        texts = [event.data["text"] for event in chunks if event.event_type == "output_chunk"]
        assert "".join(texts) == "".join(f"{number}\n" for number in range(500))
        assert len(texts) < 250
        assert [event.seq for event in chunks] == sorted(event.seq for event in chunks)
    stored = [event for event in (await api.events(run=run.run_id)).events if event.path == "/talk"]
    assert len([event for event in stored if event.event_type == "output_chunk"]) == 500


async def test_an_event_is_encoded_once_for_all_watchers(api: Api, steps: asyncio.Queue[int | None]) -> None:
    run = await api.start(workflow="stepping")
    encoded: list[tuple[int, str]] = []

    def encode(frame: EventFrame, cursor: str) -> str:
        encoded.append((frame.event.seq, cursor))
        return f"{cursor} {frame.response.model_dump_json()}"

    async def watch() -> list[str]:
        batches = await collected(api.hub.watch_run(run.run_id, 2))
        return [frame.encode(encode, str(frame.event.seq)) for frames in batches for frame in frames]

    watching = [asyncio.ensure_future(watch()) for _ in range(20)]
    while len(api.hub._subscriptions) < 20:  # noqa: ASYNC110 - nothing tells when a watcher has subscribed
        await asyncio.sleep(0)
    for number in (3, 2, None):
        steps.put_nowait(number)
    seen = await asyncio.gather(*watching)
    assert seen == seen[:1] * 20
    assert len(seen[0]) > 5
    assert len(encoded) == len(set(encoded)) == len(seen[0])
