"""The runs of a cluster share the queues of their session: slots, rates, priorities and pauses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import open_server, open_servers, wait_for_end, wait_for_run
from engine.temporal.worker_processes import WorkerProcess
from nerve import FunctionNode, Queue, Session, WorkflowContext
from nerve.api import Api
from nerve.core.nodes.context import ExecutionContext
from nerve.engine.session_queues import PAUSED_KIND, row_owner
from nerve.engine.temporal import cluster_queues
from nerve.engine.temporal.client import connect_client
from nerve.engine.temporal.cluster_queues import ClusterQueues
from nerve.engine.temporal.payloads import make_data_converter
from nerve.project.engine_url import parse_engine_url
from nerve.store.port import Append, WaitRow
from nerve.store.postgres_projection import PostgresProjection
from nerve.store.postgres_queues import StoredEntry

ENGINE = "temporal://127.0.0.1:7233/default"


def entry(run: str, *, priority: int = 0, arrived: float = 1.0, key: str = "", **limits: Any) -> StoredEntry:
    values = {"concurrency": None, "rate_limit": None, "rate_seconds": None, **limits}
    return StoredEntry(run, "/a", "q", key, run, priority, arrived, **values)


@pytest.fixture
def projection(postgresql_url: str) -> Iterator[PostgresProjection]:
    with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
        yield projection


@pytest.fixture
def queues(projection: PostgresProjection) -> ClusterQueues:
    return ClusterQueues(projection, "default")


def test_of_many_entries_at_once_as_many_get_a_slot_as_there_are(postgresql_url: str) -> None:
    def enter(number: int) -> bool:
        with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
            queues = ClusterQueues(projection, "default")
            return queues.exchange([], [entry(f"r{number}", concurrency=3)]).has_slot[0]

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(enter, range(16))) == 3


def test_a_free_slot_goes_to_the_highest_priority_and_then_to_the_oldest(queues: ClusterQueues) -> None:
    waiting = [entry("old", arrived=1), entry("new", arrived=2), entry("high", arrived=3, priority=1)]
    waiting = [each._replace(concurrency=1) for each in waiting]
    assert queues.exchange([], [entry("first", concurrency=1)]).has_slot == [True]
    assert queues.exchange([], waiting[::-1]) == ([False] * 3, [])
    # A request that is repeated changes nothing.
    assert queues.exchange([], [waiting[0], entry("first", concurrency=1)]).has_slot == [False, True]
    order, current = [], "first"
    while granted := queues.exchange([(current, "/a", 0)], []).granted:
        [current] = [each.run for each in granted]
        order.append(current)
    assert order == ["high", "old", "new"]
    assert not queues.has_waiting_entries()


def test_a_removal_that_is_repeated_late_leaves_the_next_request_its_slot(queues: ClusterQueues) -> None:
    first = entry("a", concurrency=1, asked=3)
    queues.exchange([], [first])
    assert queues.exchange([("a", "/a", 3)], []) == ([], [])
    assert queues.exchange([], [first._replace(asked=5)]).has_slot == [True]
    queues.exchange([("a", "/a", 3)], [])
    assert queues.exchange([], [entry("b", concurrency=1)]).has_slot == [False]


def test_each_value_of_a_key_has_slots_of_its_own(queues: ClusterQueues) -> None:
    entries = [entry(run, key=key, concurrency=1) for run, key in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert queues.exchange([], entries).has_slot == [True, True, False]


def test_a_rate_counts_the_starts_of_all_runs(queues: ClusterQueues) -> None:
    entries = [entry(f"r{number}", arrived=number, rate_limit=2, rate_seconds=0.5) for number in range(4)]
    began, deadline, later = time.monotonic(), time.monotonic() + 30, list[str]()
    assert queues.exchange([], entries).has_slot == [True, True, False, False]
    while len(later) < 2:
        assert time.monotonic() < deadline
        granted, delay = queues.grant_all()
        later += [each.run for each in granted]
        assert delay is None or 0 < delay <= 0.5
        time.sleep(delay or 0)
    assert later == ["r2", "r3"]
    assert time.monotonic() - began >= 0.5


def test_a_paused_queue_gives_no_slots(queues: ClusterQueues, projection: PostgresProjection) -> None:
    row = WaitRow("default", row_owner("default", "q"), "", PAUSED_KIND, 1.0, "{}")
    projection.append_values([Append("", 0, (), waits=[row])])
    assert queues.exchange([], [entry("a")]).has_slot == [False]
    assert queues.grant_all() == ([], None)
    projection.append_values([Append("", 0, (), waits=[row._replace(data=None)])])
    assert [each.run for each in queues.grant_all()[0]] == ["a"]


def test_a_slot_is_untold_until_its_run_knows_it(
    queues: ClusterQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_queues, "UNTOLD_AGE_S", 0.0)
    entries = [entry("a", concurrency=1), entry("b", concurrency=1, arrived=2.0)]
    queues.exchange([], entries)
    assert queues.untold() == []
    [granted] = queues.exchange([("a", "/a", 0)], []).granted
    assert queues.untold() == [granted]
    queues.confirm([granted])
    assert queues.untold() == []
    assert queues.remove_families(["b"]) == []
    assert queues.exchange([], [entry("c", concurrency=1)]).has_slot == [True]


# -- runs ------------------------------------------------------------------------------------------


def register(session: Session) -> None:
    session.add_queue(Queue("one", concurrency=1))
    session.add_queue(Queue("rated", rate="2/s"))

    async def work(context: ExecutionContext) -> Any:
        begun = time.time()
        await asyncio.sleep(0.1)
        with (Path(context.input) / "periods").open("a") as periods:
            periods.write(f"{begun} {time.time()}\n")

    FunctionNode("work", session, work)

    @session.workflow
    async def queued(ctx: WorkflowContext) -> Any:
        for _ in range(2):
            await ctx.run("work", ctx.input, queue="one")
        return "done"

    @session.workflow(queue="one")
    async def whole(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Go on?", choices=["yes"])

    @session.workflow
    async def rated(ctx: WorkflowContext) -> Any:
        await ctx.run("work", ctx.input, queue="rated")


@pytest.fixture
async def servers(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[list[Api]]:
    """The APIs of two servers."""
    async with open_servers(temporal_url, postgresql_url, tmp_path, register) as apis:
        yield apis


def read_periods(folder: Path) -> list[list[float]]:
    """Return when each step began and ended, in the order of their begin."""
    lines = (folder / "periods").read_text().splitlines() if (folder / "periods").exists() else []
    return sorted([*map(float, line.split())] for line in lines)


def overlaps(periods: list[list[float]]) -> int:
    return sum(begun < ended for (_, ended), (begun, _) in pairwise(periods))


async def wait_for_periods(folder: Path, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if len(read_periods(folder)) >= count:
                return
            await asyncio.sleep(0.02)


async def test_steps_of_different_runs_use_the_only_slot_one_after_the_other(
    servers: list[Api], tmp_path: Path
) -> None:
    runs = [await servers[n % 2].start(workflow="queued", input=str(tmp_path)) for n in range(4)]
    for run in runs:
        assert (await wait_for_end(servers[0], run.run_id)).result == "done"
    periods = read_periods(tmp_path)
    assert (len(periods), overlaps(periods)) == (8, 0)


async def test_a_step_that_finds_a_free_slot_records_no_wait(servers: list[Api], tmp_path: Path) -> None:
    run = await servers[0].start(workflow="queued", input=str(tmp_path))
    await wait_for_end(servers[0], run.run_id)
    types = [event.event_type for event in (await servers[0].events(run=run.run_id)).events]
    step = ["node_started", "node_completed"]
    assert types == ["workflow_started", *step, *step, "workflow_completed"]


async def test_a_run_waits_for_the_slot_of_another_run_until_that_ends(servers: list[Api]) -> None:
    first = await servers[0].start(workflow="whole")
    await wait_for_run(servers[0], first.run_id, lambda run: run.gates)
    second = await servers[1].start(workflow="whole")
    await wait_for_queue(servers[1], lambda queue: (queue.running, queue.waiting) == (1, 1))
    await servers[0].pause(run=second.run_id)
    await wait_for_queue(servers[1], lambda queue: (queue.running, queue.waiting) == (1, 0))
    await servers[0].resume(run=second.run_id)
    await wait_for_queue(servers[1], lambda queue: (queue.running, queue.waiting) == (1, 1))
    await servers[0].pause_queue(queue="one")
    await servers[0].stop(run=first.run_id)
    paused = await wait_for_queue(servers[1], lambda queue: queue.running == 0)
    assert (paused.waiting, paused.paused) == (1, True)
    await servers[1].resume_queue(queue="one")
    await wait_for_run(servers[0], second.run_id, lambda run: run.gates)
    await servers[0].answer(run=second.run_id, answer="yes")
    await wait_for_end(servers[0], second.run_id)
    await wait_for_queue(servers[1], lambda queue: (queue.running, queue.waiting) == (0, 0))


async def wait_for_queue(api: Api, is_met: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(30):
        while True:
            [queue] = [each for each in (await api.queues()).queues if each.name == "one"]
            if is_met(queue):
                return queue
            await asyncio.sleep(0.05)


async def test_a_rate_holds_for_all_runs_together(servers: list[Api], tmp_path: Path) -> None:
    runs = [await servers[0].start(workflow="rated", input=str(tmp_path)) for _ in range(5)]
    for run in runs:
        await wait_for_end(servers[0], run.run_id)
    starts = [begun for begun, _ in read_periods(tmp_path)]
    # A step begins some time after its slot is granted.
    assert starts[4] - starts[0] > 1.5


async def test_the_slot_of_a_workflow_that_was_terminated_is_free_again(
    servers: list[Api], temporal_url: str, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_queues, "LOST_CHECKS", 1)
    address = parse_engine_url(temporal_url)
    lost = await servers[0].start(workflow="whole")
    await wait_for_run(servers[0], lost.run_id, lambda run: run.gates)
    waiting = await servers[0].start(workflow="whole")
    await wait_for_queue(servers[0], lambda queue: queue.waiting == 1)
    with closing(PostgresProjection(postgresql_url, "default", str(address))) as projection:
        client = await connect_client(address, make_data_converter(projection))
        await client.get_workflow_handle(lost.run_id).terminate()
    await wait_for_run(servers[0], waiting.run_id, lambda run: run.gates)


@pytest.mark.full
async def test_the_slots_of_a_killed_body_worker_are_free_when_their_steps_have_ended(
    temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    tests = str(Path(__file__).parents[2])
    (tmp_path / "flows.py").write_text(
        f"import sys\nsys.path.append({tests!r})\nfrom engine.temporal.test_cluster_queues import register\n"
    )

    def worker(*options: str) -> WorkerProcess:
        return WorkerProcess(tmp_path, temporal_url, postgresql_url, *options, "--with", "flows.py")

    async with AsyncExitStack() as stack:
        options = ("--bodies",), ("--bodies", "--leaves", "bash")
        killed, other = (stack.enter_context(worker(*each)) for each in options)
        killed.wait_until_ready()
        other.wait_until_ready()
        api = await stack.enter_async_context(open_server(temporal_url, postgresql_url, tmp_path, register))
        runs = [await api.start(workflow="queued", input=str(tmp_path)) for _ in range(5)]
        await wait_for_periods(tmp_path, 3)
        killed.kill()
        for run in runs:
            assert (await wait_for_end(api, run.run_id)).result == "done"
        assert overlaps(read_periods(tmp_path)) == 0
        assert len(read_periods(tmp_path)) == 10
