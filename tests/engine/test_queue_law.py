"""The law of queues: for any arrivals, ends, pauses and crashes, the limits hold and every entry gets in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.core.queues import Queue, QueueRequest
from nerve.engine.queue_lane import QueueEntry
from nerve.engine.run_summary import QUEUE_KIND
from nerve.engine.session_queues import WAIT_SUFFIX, SessionQueues
from nerve.journal.events import QueueWaiting
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, RunRow, WaitRow

pytestmark = pytest.mark.local("looks at executors")

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "end", "leave", "wait", "pause", "resume", "crash"]),
        st.integers(0, 9),
    ),
    max_size=40,
)
QUEUES = st.builds(
    Queue,
    st.just("q"),
    st.none() | st.integers(1, 3),
    st.none() | st.sampled_from(["1/s", "2/s", "3/s"]),
    st.just("lane"),
)


class World:
    """A virtual clock, and the queues of the processes that follow each other on one store."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.store, self.now = queue, MemoryStore(), 1000.0
        self.timers: list[tuple[float, int, Callable[..., object]]] = []
        self.count = 0
        self.entries: dict[str, QueueEntry] = {}
        self.holders: set[str] = set()
        self.starts: dict[str, list[float]] = {}
        self.arrived: list[str] = []
        self.is_paused = False
        self.begin_process()

    def begin_process(self) -> None:
        self.timers, self.entries = [], {}
        self.queues = SessionQueues(
            self.store,
            "default",
            lambda: {"q": self.queue},
            lambda: self,  # type: ignore[arg-type, return-value]
            lambda: False,
            self.claim,
            self,
        )

    def time(self) -> float:
        return self.now

    monotonic = time

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
        self.count += 1
        heapq.heappush(self.timers, (self.now + delay, self.count, callback))

    def flush_soon(self, source: Any) -> None:
        part = source.drain()
        self.store.append([part])
        source.on_commit(None)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, _, callback = heapq.heappop(self.timers)
            callback()
        self.now = end

    def write(self, run: str, waits: list[WaitRow], state: str = "running") -> None:
        ended = self.now if state == "completed" else None
        row = RunRow(run, "default", "w", state, 1.0, ended)
        self.store.append([Append(run, 0, (), row, waits=waits)])

    def arrive(self, number: int) -> None:
        run = f"r{len(self.arrived)}"
        self.arrived.append(run)
        self.enter(run, QueueRequest("q", str(number % 2), number % 3))

    def enter(self, run: str, request: QueueRequest) -> None:
        entry = self.entries[run] = self.queues.enter(run, "/s", request, self.now)
        if entry.is_granted:
            self.start(run)
            return
        entry.on_granted = lambda: self.start(run)
        data = QueueWaiting(*request).encode()
        self.write(run, [WaitRow("default", run, f"/s{WAIT_SUFFIX}", QUEUE_KIND, entry.arrived_at, data)])

    def claim(self, run: str) -> None:
        """Continue a run that recovery left in the store."""
        self.call_later(0.0, lambda: self.enter(run, self.queues._entries[run]["/s"].request))

    def start(self, run: str) -> None:
        entry = self.entries[run]
        is_new = not entry.is_recorded
        self.holders.add(run)
        if is_new:
            entry.is_recorded = True
            lane = entry.request.key or ""
            self.starts.setdefault(lane, []).append(self.now)
            closed = WaitRow("default", run, f"/s{WAIT_SUFFIX}", "", 0.0, None)
            self.write(run, [closed, *self.queues.rows_of(entry)])
        self.check()

    def end(self, run: str) -> None:
        entry = self.entries.pop(run)
        self.holders.discard(run)
        self.write(run, [], "completed")
        self.queues.leave(entry)

    def crash(self) -> None:
        held = set(self.holders)
        self.begin_process()
        self.holders = set()
        self.queues.restore()
        # Recovery resumes the runs that held a slot, in any order.
        for run in sorted(held):
            self.enter(run, self.queues._entries[run]["/s"].request)
        assert self.holders == held, "a slot was lost"
        self.queues.start_waiting()

    def check(self) -> None:
        by_lane: dict[str, int] = {}
        for run in self.holders:
            lane = self.entries[run].request.key or ""
            by_lane[lane] = by_lane.get(lane, 0) + 1
        limit, rate = self.queue.concurrency, self.queue.window
        assert limit is None or all(number <= limit for number in by_lane.values()), "too many holders"
        for starts in self.starts.values() if rate is not None else ():
            pairs = zip(starts, starts[rate.limit :], strict=False)
            assert all(later - earlier >= rate.seconds - 1e-6 for earlier, later in pairs), "too fast"

    def pick(self, runs: list[str], number: int) -> str | None:
        return runs[number % len(runs)] if runs else None

    def act(self, action: str, number: int) -> None:
        match action:
            case "arrive":
                self.arrive(number)
            case "wait":
                self.pass_time(number / 4)
            case "crash":
                self.crash()
            case "end" if (run := self.pick(sorted(self.holders), number)) is not None:
                self.end(run)
            case "leave" if (
                run := self.pick(sorted(self.entries.keys() - self.holders), number)
            ) is not None:
                self.end(run)
        self.pass_time(0.0)
        self.check()


async def drive(queue: Queue, actions: list[tuple[str, int]]) -> None:
    world = World(queue)
    for action, number in actions:
        if action in ("pause", "resume"):
            await (world.queues.pause if action == "pause" else world.queues.resume)("q")
            world.is_paused = action == "pause"
        world.act(action, number)
        started = len([at for starts in world.starts.values() for at in starts])
        if world.is_paused:
            assert action == "pause" or started == getattr(world, "last_started", started), "paused"
        world.last_started = started  # type: ignore[attr-defined]
    if world.is_paused:
        await world.queues.resume("q")
    # Every entry gets its turn: without new arrivals the queue empties.
    for _ in range(2 * len(world.arrived) + 2):
        world.pass_time(1.0)
        for run in sorted(world.holders):
            world.end(run)
    world.pass_time(1.0)
    assert not world.queues._entries, "an entry waits for ever"
    assert all(info.running == info.waiting == 0 for info in world.queues.describe_queues())


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(QUEUES, ACTIONS)
async def test_limits_hold_and_every_entry_gets_its_turn(
    queue: Queue, actions: list[tuple[str, int]]
) -> None:
    await drive(queue, actions)
