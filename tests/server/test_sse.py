"""Streams of events: each event once, in order, from wherever one was; and nobody is waited for."""

import asyncio
import json
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nerve.api import event_hub
from nerve.server import event_feed
from server.conftest import Served, serving, until
from server.sse import Message, stream


async def start(client: httpx2.AsyncClient, workflow: str, **given: Any) -> dict[str, Any]:
    reply = await client.post("/api/runs", json={"workflow": workflow, **given})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


async def all_of(client: httpx2.AsyncClient, path: str, last: str | None = None) -> list[Message]:
    return [each async for each in stream(client, path, last)]


@pytest.mark.requirement("S0-66")
async def test_a_run_is_streamed_from_its_first_event_to_its_last(client: httpx2.AsyncClient) -> None:
    run = await start(client, "hello", input="you", wait=True)
    seen = await all_of(client, f"/events/workflow/{run['run_id']}")
    assert [int(each.id or 0) for each in seen] == list(range(1, len(seen) + 1))
    assert (seen[0].kind, seen[-1].kind) == ("workflow_started", "workflow_completed")
    assert seen[0].data["run_id"] == run["run_id"]
    assert seen[-1].data["data"]["result"] == seen[-1].data["result"] == "hello you"


async def test_a_gate_is_seen_when_it_opens_and_when_it_is_answered(client: httpx2.AsyncClient) -> None:
    run = await start(client, "ask")
    kinds = []
    async with aclosing(stream(client, f"/events/workflow/{run['run_id'][:13]}")) as events:
        async for each in events:
            kinds.append(each.kind)
            if each.kind == "gate_waiting":
                assert each.data["prompt"] == "Go on?"
                await client.post("/api/answers", json={"run": run["run_id"], "answer": "yes"})
    assert kinds[-1] == "workflow_completed"
    assert kinds.index("gate_waiting") < kinds.index("gate_answered")


@pytest.mark.requirement("S1-36")
async def test_a_gate_of_a_child_run_is_in_the_stream_of_its_parent(
    served: Served, client: httpx2.AsyncClient
) -> None:
    @served.api.session.workflow
    async def around(context: Any) -> Any:
        return await context.run_workflow("ask")

    run = await start(client, "around")
    seen = []
    async with aclosing(stream(client, f"/events/workflow/{run['run_id']}")) as events:
        async for each in events:
            seen.append(each)
            if each.kind == "gate_waiting":
                given = {"run": run["run_id"], "gate": each.data["gate_id"], "answer": "yes"}
                assert (await client.post("/api/answers", json=given)).status_code == 200
    kinds = [each.kind for each in seen]
    assert [kind for kind in kinds if kind.startswith("gate_")] == ["gate_waiting", "gate_answered"]
    ids = [int(each.id or 0) for each in seen]
    assert ids == sorted(ids), "one comes back with the number of an event of the run itself"
    assert ids[-1] == seen[-1].data["seq"]


async def test_reconnecting_to_a_finished_run_returns_204(client: httpx2.AsyncClient) -> None:
    run = await start(client, "hello", wait=True)
    path = f"/events/workflow/{run['run_id']}"
    seen = await all_of(client, path)
    reply = await client.get(path, headers={"last-event-id": seen[-1].id or ""})
    assert reply.status_code == 204


async def test_an_unknown_event_number_is_reported_as_a_gap(client: httpx2.AsyncClient) -> None:
    run = await start(client, "hello", wait=True)
    seen = await all_of(client, f"/events/workflow/{run['run_id']}", "999999")
    assert [each.kind for each in seen] == ["gap", "snapshot"]
    assert seen[0].data["oldest"] == 1
    assert seen[1].data["state"] == "completed"
    assert seen[1].id == str(seen[1].data["last_seq"])


@pytest.mark.parametrize(("run", "last", "status"), [("nobody", None, 404), ("RUN", "x", 400)])
async def test_an_invalid_stream_request_is_an_error(
    client: httpx2.AsyncClient, run: str, last: str | None, status: int
) -> None:
    known = (await start(client, "hello", wait=True))["run_id"]
    headers = {"last-event-id": last} if last else {}
    reply = await client.get(f"/events/workflow/{run.replace('RUN', known)}", headers=headers)
    assert reply.status_code == status
    assert reply.json()["message"]


async def test_all_runs_are_streamed_after_a_snapshot(client: httpx2.AsyncClient) -> None:
    waiting = await start(client, "ask", wait=True)
    async with aclosing(stream(client, "/events")) as events:
        first = await anext(events)
        assert first.kind == "snapshot"
        assert [run["run_id"] for run in first.data["runs"]] == [waiting["run_id"]]
        assert [gate["run_id"] for gate in first.data["gates"]] == [waiting["run_id"]]
        run = await start(client, "hello", wait=True)
        seen = [await anext(events) for _ in range(2)]
    assert {each.data["run_id"] for each in seen} == {run["run_id"]}
    later = await start(client, "hello", wait=True)
    async with aclosing(stream(client, "/events", seen[0].id)) as events:
        again = [await anext(events) for _ in range(3)]
    assert again[0] == seen[1]
    assert later["run_id"] in {each.data["run_id"] for each in again}


async def test_a_snapshot_is_small_despite_large_results(client: httpx2.AsyncClient) -> None:
    small = await start(client, "hello", input="x", wait=True)
    large = [await start(client, "hello", input="x" * 500_000, wait=True) for _ in range(20)]
    async with aclosing(stream(client, "/events")) as events:
        told = (await anext(events)).data
    assert len(json.dumps(told)) < 100_000
    assert [run["run_id"] for run in told["runs"]] == [run["run_id"] for run in (*large[::-1], small)]
    assert [(run["result"], run["left_out"]) for run in told["runs"][:-1]] == [(None, ["result"])] * 20
    assert told["runs"][-1]["result"] == "hello x"
    assert "left_out" not in told["runs"][-1]
    whole = (await client.get(f"/api/runs/{large[0]['run_id']}")).json()
    assert len(whole["result"]) > 500_000
    assert not told["more"]


async def test_a_truncated_snapshot_is_marked(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        await start(client, "ask", wait=True)

    async def snapshot() -> Any:
        async with aclosing(stream(client, "/events")) as events:
            return (await anext(events)).data

    whole = await snapshot()
    gate, run = (len(json.dumps(whole[name][0])) + 10 for name in ("gates", "runs"))
    for gates, runs in ((4, 2), (2, 0)):
        monkeypatch.setattr(event_feed, "MAX_SNAPSHOT_BYTES", gates * gate + runs * run)
        told = await snapshot()
        assert (len(told["gates"]), told["more_gates"]) == (gates, gates < 4)
        assert (len(told["runs"]), told["more"]) == (runs, True)


@pytest.mark.parametrize("mark", ["other-1", "nonsense", "-", "HERE-999999", "HERE--1", "HERE-" + "9" * 400])
async def test_an_unknown_mark_is_a_gap(served: Served, client: httpx2.AsyncClient, mark: str) -> None:
    mark = mark.replace("HERE", served.api.hub._hub_id)
    async with aclosing(stream(client, "/events", mark)) as events:
        assert [(await anext(events)).kind for _ in range(2)] == ["gap", "snapshot"]


async def test_an_idle_stream_sends_heartbeats(tmp_path: Path) -> None:
    async with serving(tmp_path, heartbeat=0.05) as served, served.client() as client:
        run = await start(client, "ask", wait=True)
        async with client.stream("GET", f"/events/workflow/{run['run_id']}") as reply:
            text = ""
            async for part in reply.aiter_text():
                text += part
                if text.count(": heartbeat") == 3:
                    break


async def test_a_lagging_subscriber_is_notified_and_can_reconnect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that does not read for a while loses the stream, and no event."""
    monkeypatch.setattr(event_hub, "MAX_QUEUED_EVENTS", 10)
    async with serving(tmp_path) as served, served.client() as client:
        run = await start(client, "ask", wait=True)
        async with aclosing(stream(client, "/events")) as all_events:
            await anext(all_events)
            # All in one turn of the loop, in which nobody can read.
            watcher = next(iter(served.api.hub._subscriptions))
            event = served.api.session.get_workflow_run(run["run_id"]).events[0]
            for number in range(20):
                watcher.push(event_hub.EventFrame(event, number))
            last = await anext(all_events)
            assert last.kind == "lagged"
            assert last.id == last.data["last"]
            with pytest.raises(StopAsyncIteration):
                await anext(all_events)
        assert served.api.hub._subscriptions == set()


async def stalled(served: Served, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A reader who has read the first line of a stream, and then nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
    writer.write(f"{head}Authorization: Bearer {served.tokens['read']}\r\n\r\n".encode())
    await reader.readline()
    return reader, writer


BEAT = 0.2


async def test_a_subscriber_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    async with serving(tmp_path, heartbeat=BEAT) as served, served.client() as client:
        run = await start(client, "chatty", input=15_000, wait=True)
        reader, writer = await stalled(served, f"/events/workflow/{run['run_id']}")
        began = time.monotonic()
        await until(lambda: not served.server.server_state.tasks)
        assert time.monotonic() - began < 5  # it takes two heartbeats, and as long as the machine is busy
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(100_000_000)
        writer.close()


@pytest.mark.parametrize(
    ("events", "factor"), [(10_000, 2.0), pytest.param(100_000, 1.15, marks=pytest.mark.full)]
)
async def test_a_subscriber_that_reads_nothing_does_not_block_the_run(
    tmp_path: Path, events: int, factor: float
) -> None:
    """The same run beside one and without one, by the best of a few tries."""
    async with serving(tmp_path, heartbeat=BEAT) as served, served.client() as client:
        alone, beside = [], []
        for _ in range(5):
            alone.append(await took(client, events))
            _, writer = await stalled(served, "/events")
            watchers = list(served.api.hub._subscriptions)
            beside.append(await took(client, events))
            assert all(
                watcher.has_lagged or watcher.queued_bytes <= event_hub.MAX_QUEUED_BYTES
                for watcher in watchers
            )
            writer.close()
            if min(beside) < factor * min(alone):
                return
        pytest.fail(f"alone {min(alone):.2f} s, beside a reader who does not read {min(beside):.2f} s")


async def took(client: httpx2.AsyncClient, events: int) -> float:
    began = time.monotonic()
    assert (await start(client, "chatty", input=events, wait=True))["result"] == events
    return time.monotonic() - began


async def test_streams_end_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as client:
        run = await start(client, "ask", wait=True)
        events = stream(client, f"/events/workflow/{run['run_id']}")
        await anext(events)
        served.server.stop_event.set()
        async with asyncio.timeout(60):
            async for _ in events:
                pass


async def test_subscriptions_of_a_disconnected_client_are_removed(
    served: Served, client: httpx2.AsyncClient
) -> None:
    run = await start(client, "ask", wait=True)
    async with aclosing(stream(client, f"/events/workflow/{run['run_id']}")) as events:
        await anext(events)
        assert len(served.api.hub._subscriptions) == 1
    await until(lambda: not served.api.hub._subscriptions)


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.full)])
async def test_many_streams_of_one_run_are_held_and_get_every_event(tmp_path: Path, count: int) -> None:
    async with serving(tmp_path) as served, served.client() as client:
        run = await start(client, "ask", wait=True)
        readers = []
        for _ in range(count):
            reader, writer = await stalled(served, f"/events/workflow/{run['run_id']}")
            readers.append((reader, writer))
        await until(lambda: len(served.api.hub._subscriptions) == count)
        assert len(served.server.server_state.connections) >= count
        assert (await client.get("/api/health")).status_code == 200
        await client.post("/api/answers", json={"run": run["run_id"], "answer": "yes"})

        async def read(reader: asyncio.StreamReader) -> list[bytes]:
            lines = [line async for line in reader]
            return [line for line in lines if line.startswith((b"id: ", b"event: "))]

        seen = await asyncio.gather(*(read(reader) for reader, _ in readers))
        assert seen == seen[:1] * count
        assert seen[0][-1] == b"event: workflow_completed\n"
        for _, writer in readers:
            writer.close()


async def test_the_stream_of_a_run_follows_its_chain_and_resumes_in_a_later_run(
    served: Served, client: httpx2.AsyncClient
) -> None:
    @served.api.session.workflow
    async def count_down(ctx: Any) -> str:
        if ctx.input == 0:
            return "done"
        ctx.continue_as_new(ctx.input - 1)

    run = await start(client, "count_down", input=2)
    path = f"/events/workflow/{run['run_id']}"
    seen = await all_of(client, path)
    _, second, third = (each.data["run_id"] for each in seen if each.kind == "workflow_started")
    expected = ["1", "2", f"{second}:1", f"{second}:2", f"{third}:1", f"{third}:2"]
    assert [each.id for each in seen] == expected
    for number, cursor in enumerate(expected[:-1], 1):
        assert [each.id for each in await all_of(client, path, cursor)] == expected[number:]
    assert (await client.get(path, headers={"last-event-id": expected[-1]})).status_code == 204
