"""What a workflow is for the engine in it: no disk, no threads, and a clock that the history determines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from nerve.core.clock import ClockTimer
from nerve.engine.engine_host import EngineHost
from nerve.engine.group_commit import CommitOutcome, CommitSource, GroupCommitter
from nerve.engine.temporal.workflow_queues import WorkflowQueues
from nerve.store.port import Append, Store

OUTCOMES_PER_TURN = 2500
"""With two rows for each step, about as many rows as a workflow replays in a quarter of a second."""


class LoopClock:
    """The clock of the running event loop: in a workflow, the time of its history."""

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> ClockTimer:
        return asyncio.get_running_loop().call_later(delay, callback, *args)


class WorkflowHost(EngineHost):
    """Hosts the engine of a family of runs in a workflow."""

    commits_alone = False
    writes_logs = False
    counts_days = False
    queue_class = WorkflowQueues
    outcomes_per_turn = OUTCOMES_PER_TURN

    def __init__(self, seed: str, on_written: Callable[[Sequence[Append]], None]) -> None:
        """`seed` is that of all random numbers; `on_written` receives what the runs have written."""
        self._seed, self._on_written = seed, on_written

    def open_committer(
        self, store: Store, time_watchers: Sequence[Callable[[float], None]]
    ) -> GroupCommitter:
        return TurnCommitter(store, self._on_written)

    def make_seed(self, run_id: str) -> str:
        # From the id and not from a generator: two child runs that start in another order get the same seeds.
        return sha256(f"{self._seed}\n{run_id}".encode()).hexdigest()[:32]


class TurnCommitter(GroupCommitter):
    """Commits at the end of the turn: a timer would be an entry of the history, and nothing is written."""

    def __init__(self, store: Store, on_written: Callable[[Sequence[Append]], None]) -> None:
        super().__init__(store)
        self._on_written = on_written

    def flush_lazily(self, source: CommitSource) -> None:
        self.flush_soon(source)

    def commit_batch(self, batch: list[Append], timeout: float) -> list[CommitOutcome]:
        outcomes: list[CommitOutcome] = list(self._store.append(batch, timeout))
        self._on_written([part for part, error in zip(batch, outcomes, strict=True) if error is None])
        return outcomes
