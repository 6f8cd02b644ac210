"""Accounts: how many agents of a provider work at once, and until when its limit holds everybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

SLOTS = 4
"""Agents of one provider that work at the same time, where nothing else is said."""
PAUSES = (60.0, 120.0, 300.0, 900.0)
"""Seconds to wait for the end of a limit that does not say when it ends, one time after the other."""


class Accounts:
    """What all runs of a session share when they ask agents."""

    def __init__(
        self, slots: Mapping[str, int] | None = None, limited: Mapping[str, float] | None = None
    ) -> None:
        self.slots = {name: counted(name, number) for name, number in (slots or {}).items()}
        self.limited: dict[str, float] = dict(limited or {})
        """Providers that refuse everybody, and until when, in seconds since 1970."""
        self._times: dict[str, int] = {}
        self._over: dict[str, asyncio.Event] = {}
        """For those who wait until providers are not limited any more."""
        self._free: dict[str, asyncio.Semaphore] = {}
        self._threads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._alone = False

    @asynccontextmanager
    async def turn(self, provider: str, thread: str | None) -> AsyncIterator[Seat]:
        """One turn of one conversation: in a slot of the provider, and never beside another of the thread."""
        free = self._free.setdefault(provider, asyncio.Semaphore(self.slots.get(provider, SLOTS)))
        alone = self._threads.setdefault(thread, asyncio.Lock()) if thread else asyncio.Lock()
        async with alone:
            seat = Seat(free)
            await seat.take()
            try:
                yield seat
            finally:
                seat.leave()

    async def alone(self) -> None:
        """Wait for agents whose engine died before us: they may still be in the same conversations."""
        from nerve.process.leftover import gone

        if not self._alone:
            await gone()
            self._alone = True

    def told(self) -> dict[str, dict[str, float]]:
        """Of each provider: its slots, how many are taken, and until when it is limited."""
        names = {*self.slots, *self._free, *self.limited}
        return {name: self._told(name) for name in sorted(names)}

    def _told(self, provider: str) -> dict[str, float]:
        slots = self.slots.get(provider, SLOTS)
        free = self._free.get(provider)
        told: dict[str, float] = {"slots": slots, "busy": slots - free._value if free is not None else 0}
        until = self.limited.get(provider)
        return told if until is None else told | {"limited_until": until}

    def is_limited(self, provider: str) -> bool:
        return self.limited.get(provider, 0.0) > time.time()

    def times(self, provider: str) -> int:
        """How often the provider has refused since it last answered; those at once are one time."""
        return self._times.get(provider, 0)

    def limit(self, provider: str, until: float | None, times: int | None = None) -> float:
        """A provider refuses until then; gives when it is worth asking again.

        `times` is what `times()` said before it was asked: who was asked before others were refused is
        refused with them, and nobody has to wait longer for that.
        """
        now, before = time.time(), self.limited.get(provider, 0.0)
        if times is None or times >= self.times(provider):
            self._times[provider] = self.times(provider) + 1
        times = self._times[provider]
        if until is None:
            until = before if before > now else now + PAUSES[min(times, len(PAUSES)) - 1]
        elif until <= now:
            until = now + min(times, PAUSES[0])
        self.limited[provider] = max(until, before)
        return self.limited[provider]

    async def open(self, provider: str, tell: Callable[[float], Awaitable[None]]) -> bool:
        """Return when the provider is not limited, and whether it was; `tell` is called with the time."""
        told = 0.0
        while (until := self.limited.get(provider, 0.0)) > (now := time.time()):
            if until > told:
                await tell(until)
                told = until
                continue  # it may be over by now
            over = self._over.setdefault(provider, asyncio.Event())
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), until - now)
        if told:
            self.limited.pop(provider, None)
        return told > 0

    def answered(self, provider: str) -> bool:
        """The provider has answered: what limited it is over, also for those who wait; whether it was."""
        self._times.pop(provider, None)
        if (over := self._over.pop(provider, None)) is not None:
            over.set()
        return self.limited.pop(provider, 0.0) > time.time()


class Seat:
    """The slot of one turn: it has it, or it has given it to others while a person is asked."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._has = False
        self._taking = asyncio.Lock()

    async def take(self) -> None:
        async with self._taking:
            if not self._has:
                await self._free.acquire()
                self._has = True

    def leave(self) -> None:
        if self._has:
            self._has = False
            self._free.release()

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Give the slot to others; whoever is cancelled meanwhile goes on with nothing, and needs none."""
        self.leave()
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.take()
            raise
        await self.take()


def counted(provider: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"the slots of '{provider}' must be a whole number from 1 on, not {number!r}")
    return number
