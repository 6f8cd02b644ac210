"""One lane of a queue: the entries with the same key, which share its limits."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from nerve.core.queues import Queue, QueueRequest, Rate
from nerve.lazy_dataclass import dataclass


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A step or a run that waits for a slot, or holds one."""

    run_id: str
    path: str
    """The path of the step; "" for the run itself."""
    request: QueueRequest
    arrived_at: float
    """When it began to wait, in seconds since the epoch."""
    number: int
    """Orders entries that arrived at the same time."""
    is_granted: bool = False
    has_left: bool = False
    is_claimed: bool = False
    """Whether code of this process has asked for it; others come from the store."""
    is_recorded: bool = False
    """Whether the store says that it has its slot."""
    on_granted: Callable[[], None] | None = None
    start_row: str | None = None
    """The name of the stored row of its start, if its queue has a rate."""

    @property
    def is_run(self) -> bool:
        return self.path == ""

    @property
    def is_waiting(self) -> bool:
        return not self.is_granted and not self.has_left

    @property
    def order(self) -> tuple[int, float, int]:
        return -self.request.priority, self.arrived_at, self.number


class QueueLane:
    """The holders of a lane, the entries that wait, and the starts that still count against its rate."""

    def __init__(self, name: str, key: str | None) -> None:
        self.name, self.key = name, key
        self.holder_count = 0
        self.waiting_count = 0
        self.starts: deque[tuple[float, str]] = deque()
        """The times of the last starts on the clock of the loop, and the names of their stored rows."""
        self._waiting: list[tuple[tuple[int, float, int], QueueEntry]] = []

    @property
    def is_empty(self) -> bool:
        return not (self.holder_count or self.waiting_count or self.starts)

    def add_waiting(self, entry: QueueEntry) -> None:
        heapq.heappush(self._waiting, (entry.order, entry))
        self.waiting_count += 1

    def add_holder(self, entry: QueueEntry) -> None:
        """Add an entry that held a slot before a restart, whatever the limit is now."""
        entry.is_granted = True
        self.holder_count += 1

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry, once."""
        if entry.has_left:
            return
        entry.has_left = True
        if entry.is_granted:
            self.holder_count -= 1
        else:
            self.waiting_count -= 1

    def find_next(self) -> QueueEntry | None:
        """Return the entry whose turn it is; None if none waits."""
        # An entry that has left stays in the heap until it is first.
        while self._waiting and not self._waiting[0][1].is_waiting:
            heapq.heappop(self._waiting)
        return self._waiting[0][1] if self._waiting else None

    def has_free_slot(self, queue: Queue) -> bool:
        return queue.concurrency is None or self.holder_count < queue.concurrency

    def seconds_until_start(self, rate: Rate | None, now: float) -> float:
        """Return how long the rate keeps the next entry back; 0 if it may start."""
        if rate is None or len(self.starts) < rate.limit:
            return 0.0
        return max(0.0, self.starts[-rate.limit][0] + rate.seconds - now)

    def drop_old_starts(self, rate: Rate | None, now: float) -> list[str]:
        """Forget the starts that no longer count; return the names of their rows."""
        dropped: list[str] = []
        while self.starts and (rate is None or self.starts[0][0] + rate.seconds <= now):
            dropped.append(self.starts.popleft()[1])
        return dropped

    def grant(self, entry: QueueEntry) -> None:
        """Give the entry that is next a slot."""
        heapq.heappop(self._waiting)
        self.waiting_count -= 1
        self.add_holder(entry)
