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
    async def turn(self, provider: str, thread: str | None) -> AsyncIterator[None]:
        """One turn of one conversation: in a slot of the provider, and never beside another of the thread."""
        free = self._free.setdefault(provider, asyncio.Semaphore(self.slots.get(provider, SLOTS)))
        alone = self._threads.setdefault(thread, asyncio.Lock()) if thread else asyncio.Lock()
        async with alone, free:
            yield

    @asynccontextmanager
    async def aside(self, provider: str) -> AsyncIterator[None]:
        """Give the slot of a turn to others while a person is asked."""
        free = self._free[provider]
        free.release()
        try:
            yield
        finally:
            await free.acquire()

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

    def limit(self, provider: str, until: float | None) -> float:
        """A provider refuses until then; gives when it is worth asking again."""
        times = self._times[provider] = self._times.get(provider, 0) + 1
        pause = PAUSES[min(times, len(PAUSES)) - 1]
        self.limited[provider] = max(until or time.time() + pause, self.limited.get(provider, 0.0))
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


def counted(provider: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"the slots of '{provider}' must be a whole number from 1 on, not {number!r}")
    return number
