"""Delivery: outcomes are handed to a body one at a time and in order, live and on replay alike.

Each is handed over when the body has come to rest after the one before. That is what makes
`gather`, `as_completed` and `wait(FIRST_COMPLETED)` in a user's function see the same again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from nerve.core.workflow.replay import Record, Replay
from nerve.engine.quiescence import is_woken, quiescence_of
from nerve.engine.records import outcome_of

RESTLESS = 10_000
"""Turns of the loop after which a body that is not at rest receives the next outcome: it may be spinning."""

UNSEEN = 8
"""Turns without a woken task after which a body counts as at rest, on a loop that hides its ready queue."""

PATIENCE = 10.0
"""Seconds a body may take on its own, on replay, before something recorded is asked for again."""

Outcome = Any
Entry = tuple[int, asyncio.Future[Any], Outcome, bool]


class Delivery:
    """The tasks of one body, what they wait for, and what is on its way to them."""

    def __init__(
        self, replay: Replay | None, on_stuck: Callable[[Record], None], on_live: Callable[[], bool]
    ) -> None:
        self.replay = replay
        self.offers: Replay | None = None
        self.tasks: set[asyncio.Future[Any]] = set()
        self.sequential = True
        """The body has never had a second task: whenever it waits in here it is at rest."""
        self.blocked = 0
        self.committed = 0
        self.patience = PATIENCE
        self.let_go = False
        self.stands = False
        """The run is paused or held: what is new is kept, and handed over when it goes on."""
        self._loop = asyncio.get_running_loop()
        self._on_stuck, self._on_live = on_stuck, on_live
        self._recorded: dict[int, tuple[asyncio.Future[Any], Outcome]] = {}
        self._queue: deque[Entry] = deque()
        self._aside: list[Entry] = []
        self._parked: list[asyncio.Future[Any]] = []
        self._quiescence = quiescence_of(self._loop)
        self._looking = False
        self._at_rest = False
        """What was seen in this turn of the loop; of no use after the next outcome."""
        self._turns = 0
        self._unwoken = 0
        self._watch: asyncio.TimerHandle | None = None

    @property
    def remembers(self) -> bool:
        """Whether there is something recorded that the body may ask for."""
        return self.replay is not None or self.offers is not None

    def adopt(self, task: asyncio.Future[Any]) -> None:
        self.sequential = not self.tasks and self.sequential
        self.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Future[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and self.let_go:
            task.exception()  # asking is what keeps asyncio from reporting it
        self.pump()

    def future(self) -> asyncio.Future[Any]:
        """Something the body is about to wait for."""
        self.blocked += 1
        return self._loop.create_future()

    async def awaited(self, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        finally:
            if future.cancelled():
                self.blocked -= 1

    async def awaited_in_turn(self, future: asyncio.Future[Any], is_gone: Callable[[], bool]) -> Any:
        """What is handed over in its turn, also to a body that cancels while it waits, unless it `is_gone`.

        The first time, the body had to wait as long for a leaf that took its time to end.
        """
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if is_gone():
                    if not future.done():
                        self.blocked -= 1
                        future.cancel()
                    raise

    async def never(self) -> None:
        """What the body gives up by itself, or is made to: it ends by nothing else."""
        future = self.future()
        self.pump()
        await self.awaited(future)

    def recorded(self, record: Record) -> asyncio.Future[Any]:
        """The outcome of something in the journal, when its turn comes."""
        future, outcome = self.future(), outcome_of(record.row)
        if self.replay is None or (record.lenient and self.offers is not None):
            self._queue.append((0, future, outcome, False))
        else:
            self._recorded[record.seq] = (future, outcome)
        self.pump()
        return future

    def push(self, seq: int, future: asyncio.Future[Any], outcome: Outcome, durable: bool = True) -> None:
        """A new outcome; if `durable` it is handed over only when it is on disk."""
        queue, at = self._queue, len(self._queue)
        while at and queue[at - 1][0] > seq:  # it was there before somebody could wait for it
            at -= 1
        queue.insert(at, (seq, future, outcome, durable))
        if not durable:
            self.pump()

    def awaits(self, record: Record) -> bool:
        """Whether the body waits for something recorded, which was not handed over yet."""
        return record.seq in self._recorded

    def push_aside(self, seq: int, future: asyncio.Future[Any], outcome: Outcome) -> None:
        """A new outcome for a leaf at work: handed over when it is on disk, whatever the body does."""
        self._aside.append((seq, future, outcome, True))

    def reordered(self) -> None:
        """Some of what is recorded was dropped: who waits for it is told now."""
        self._release()
        self.pump()

    def live(self) -> asyncio.Future[Any]:
        """What to wait for before something new is done: the end of the replay."""
        future = self.future()
        self._parked.append(future)
        self.pump()
        return future

    def stop(self, error: BaseException | None = None) -> None:
        """Let go of the body; whoever waits in here is told `error`."""
        self.let_go = True
        waiting = [future for future, _ in self._recorded.values()]
        waiting += [entry[1] for entry in (*self._queue, *self._aside)] + self._parked
        self._recorded.clear()
        self._queue.clear()
        self._aside.clear()
        self._parked.clear()
        if self._watch is not None:
            self._watch.cancel()
        for future in waiting:
            if error is not None and not future.done():
                future.set_exception(error)

    def pump(self) -> None:
        """Hand over what can be handed over now."""
        if self._aside:
            self._hand_aside()
        if self._looking:
            return
        while (self._queue or self.replay is not None) and self._has_next():
            if not (self._at_rest or (self.sequential and self.blocked == 1)):
                self._look_soon()
                return
            self._hand(*self._taken())
        if self.replay is not None:
            self._on_the_way()

    def _hand_aside(self) -> None:
        ready = [entry for entry in self._aside if entry[0] <= self.committed]
        self._aside = [entry for entry in self._aside if entry[0] > self.committed]
        for _, future, outcome, _ in ready:
            self._hand(future, outcome)

    def _has_next(self) -> bool:
        """Whether what comes next, from the queue or else from the journal, can be handed over."""
        if self._takes_queue():
            seq, _, _, durable = self._queue[0]
            return (not durable or seq <= self.committed) and not (self.stands and self.replay is None)
        record = self.replay.next() if self.replay is not None else None
        return record is not None and self.awaits(record)

    def _takes_queue(self) -> bool:
        """Whether the queue comes next: new outcomes come after recorded ones, as on the next replay."""
        if not self._queue or self.replay is None or self._queue[0][0] == 0:
            return bool(self._queue)
        obstacle = self.replay.obstacle()
        return obstacle is not None and obstacle.lenient

    def _taken(self) -> tuple[asyncio.Future[Any], Outcome]:
        if self._takes_queue():
            _, future, outcome, _ = self._queue.popleft()
            return future, outcome
        assert self.replay is not None
        record = self.replay.next()
        assert record is not None
        record.done = True
        return self._recorded.pop(record.seq)

    def _hand(self, future: asyncio.Future[Any], outcome: Outcome) -> None:
        if future.done():
            return
        self._stir()
        self.blocked -= 1
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _stir(self) -> None:
        """The body is about to go on."""
        self._at_rest, self._turns, self._unwoken = False, 0, 0

    def _look_soon(self) -> None:
        self._looking = True
        self._quiescence.look_next_turn(self)

    def observe_rest(self, at_rest: bool | None) -> None:
        """Go on with what has to wait until the body is at rest, or look again in the next turn."""
        self._looking = False
        self._turns += 1
        if at_rest is None:
            self._unwoken = 0 if any(map(is_woken, self.tasks)) else self._unwoken + 1
            at_rest = self._unwoken >= UNSEEN
        self._at_rest = at_rest or self._turns >= RESTLESS
        self.pump()
        self._at_rest = False

    def _on_the_way(self) -> None:
        """Nothing recorded can be handed over: the replay is at its end, or the body has yet to ask."""
        assert self.replay is not None
        obstacle = self.replay.obstacle()
        if obstacle is None:
            self._go_live()
            return
        waits = self.awaits(obstacle)
        all_wait = obstacle.kind != "drop" and not waits and 0 < len(self.tasks) == self.blocked
        if obstacle.lenient or all_wait:
            if self._at_rest:
                self._stuck(obstacle)
            else:
                self._look_soon()
        elif not waits and self._watch is None:
            delay = self.patience + self.replay.took(obstacle)
            self._watch = self._loop.call_later(delay, self._look_again, obstacle)

    def _look_again(self, obstacle: Record) -> None:
        self._watch = None
        if self.replay is not None and self.replay.obstacle() is obstacle:
            self._stuck(obstacle)
        else:
            self.pump()

    def _stuck(self, obstacle: Record) -> None:
        assert self.replay is not None
        if self.replay.give_way(obstacle):
            self.offers = self.replay
            self._release()
            self.pump()
        else:
            self._on_stuck(obstacle)

    def _go_live(self) -> None:
        if not self._on_live():
            return
        self.replay = None
        parked, self._parked = self._parked, []
        for future in parked:
            if not future.done():
                self._stir()
                self.blocked -= 1
                future.set_result(None)
        self._release()
        self.pump()

    def _release(self) -> None:
        """What was asked for and is not in the order any more is handed over as it comes."""
        ordered = self.replay.ordered() if self.replay is not None else set()
        for seq in [seq for seq in self._recorded if seq not in ordered]:
            self._queue.append((0, *self._recorded.pop(seq), False))
