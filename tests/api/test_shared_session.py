"""A session in PostgreSQL whose server does not answer: requests fail, and the event loop goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from faults.tcp_proxy import TcpProxy
from faults.worlds import replace_port
from nerve import Session
from nerve.api import Api, ApiError, reading_thread
from nerve.api.callers import Caller
from nerve.api.service import execute_operation
from nerve.api.shared_session import SharedSession
from nerve.api.stored_event_hub import StoredEventHub
from nerve.store.postgres import PostgresStore
from postgresql_server import PostgresqlServer

LONGEST_PAUSE_S = 2.5
"""Longer than the loop may be blocked on a busy machine, and shorter than any timeout of a connection."""


@pytest.fixture
def proxy(postgresql_server: PostgresqlServer) -> Any:
    with TcpProxy(postgresql_server.port) as proxy:
        yield proxy


@asynccontextmanager
async def open_owner(url: str, project: Path) -> AsyncIterator[Api]:
    """A session that executes runs, with the API of a server."""
    store = await asyncio.to_thread(PostgresStore, url)

    def prepare(session: Session) -> None:
        @session.workflow
        async def tick(ctx: Any) -> None:
            await ctx.gate("Continue?")

    async with (
        SharedSession(url, project, execute_operation, prepare).open() as shared,
        Session(store=store, project=project) as session,
    ):
        prepare(session)
        async with shared.own(session, store.epoch):
            yield Api(shared)


async def measure_pauses(stop: asyncio.Event) -> float:
    """Return the longest time for which the event loop did nothing."""
    longest, last = 0.0, time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return longest


async def test_a_database_server_that_is_silent_does_not_block_the_event_loop(
    postgresql_url: str, proxy: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_thread, "ANSWER_TIMEOUT_S", 4.0)
    async with open_owner(replace_port(postgresql_url, proxy.port), tmp_path) as api:
        run = await api.start(workflow="tick", wait=True)
        proxy.stall()
        stop = asyncio.Event()
        measuring = asyncio.create_task(measure_pauses(stop))
        requests = [
            api.runs(),
            api.run(run=run.run_id),
            api.gates(),
            api.facts(),
            api.events(run=run.run_id),
            api.pause(run=run.run_id),
        ]
        try:
            outcomes = await asyncio.gather(*requests, return_exceptions=True)
        finally:
            proxy.restore()  # the session could not be closed
        for outcome in outcomes:
            assert isinstance(outcome, ApiError)
            assert outcome.code == "busy", outcome
            assert "has not answered for 4 seconds" in outcome.message
        deadline = time.monotonic() + 60
        while True:
            try:
                assert (await api.run(run=run.run_id)).state == "waiting"
                break
            except ApiError:
                assert time.monotonic() < deadline
        stop.set()
        assert await measuring < LONGEST_PAUSE_S
        await api.answer(run=run.run_id, answer="yes")


async def test_a_cut_of_the_network_delays_a_read_and_no_event_is_missed(
    postgresql_url: str, proxy: TcpProxy, tmp_path: Path
) -> None:
    url = replace_port(postgresql_url, proxy.port)
    async with (
        open_owner(postgresql_url, tmp_path) as owner,
        SharedSession(url, tmp_path, execute_operation).open() as shared,
        asyncio.timeout(30),
    ):
        api, seen, began = Api(shared), list[int](), asyncio.Event()
        run = await owner.start(workflow="tick", wait=True)

        async def watch() -> None:
            async for event in api.hub.watch(run.run_id):
                seen.append(event.seq)
                began.set()

        watching = asyncio.create_task(watch())
        await began.wait()
        proxy.cut()
        await owner.answer(run=run.run_id, answer="yes")
        proxy.restore()
        await watching
        assert seen == list(range(1, seen[-1] + 1))
        assert (await api.run(run=run.run_id)).state == "completed"


async def test_a_command_that_another_process_executes_records_the_address_of_its_caller(
    postgresql_url: str, tmp_path: Path
) -> None:
    caller = Caller("token:answer", "http", "answer", address="192.0.2.1")
    async with (
        open_owner(postgresql_url, tmp_path) as owner,
        SharedSession(postgresql_url, tmp_path, execute_operation).open() as shared,
        asyncio.timeout(30),
    ):
        run = await owner.start(workflow="tick", wait=True)
        await Api(shared).as_caller(caller).answer(run=run.run_id, answer="yes")
        events = (await owner.events(run=run.run_id)).events
        answered = next(event for event in events if event.event_type == "gate_answered")
        assert (answered.data["by"], answered.data["address"]) == ("token:answer", "192.0.2.1")


@pytest.mark.parametrize("turns", range(4))
async def test_a_hub_closes_at_the_moment_when_news_arrive(postgresql_url: str, turns: int) -> None:
    PostgresStore(postgresql_url).close()
    async with Session(store=PostgresStore(postgresql_url, None), telemetry=False) as session:
        stream = session.engine.store.stream
        assert stream is not None
        hub = StoredEventHub(session, stream)
        hub.count_events(session.metrics)
        for _ in range(10):  # until it waits for news
            await asyncio.sleep(0)
        hub.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await hub.close()
