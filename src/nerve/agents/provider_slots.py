"""Concurrency slots of providers, shared by all runs of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from nerve.agents.rate_limits import RateLimits
from nerve.core.clock import SYSTEM_CLOCK, Clock

DEFAULT_SLOTS = 4
"""Default number of agents of one provider that run at the same time."""


class ProviderSlots:
    """The slots of each provider, and the rate limits that hold its turns back."""

    def __init__(
        self,
        slots: Mapping[str, int] | None = None,
        limited: Mapping[str, float] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.slots = dict(slots or {})
        for name, number in self.slots.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"slots of '{name}' must be an integer of at least 1, got {number!r}")
        self.rate_limits = RateLimits(limited, clock)
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._thread_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._has_no_orphans = False

    @asynccontextmanager
    async def acquire(self, provider: str, thread: str | None) -> AsyncIterator[ProviderSlot]:
        """Hold a slot of the provider for one turn; turns of the same thread never overlap."""
        semaphore = self._semaphores.setdefault(provider, asyncio.Semaphore(self.slots_of(provider)))
        thread_lock = self._thread_locks.setdefault(thread, asyncio.Lock()) if thread else asyncio.Lock()
        async with thread_lock:
            slot = ProviderSlot(semaphore)
            await slot.acquire()
            try:
                yield slot
            finally:
                slot.release()

    async def wait_for_orphans(self) -> None:
        """Wait for agents of a crashed engine: they may still use the same conversations."""
        from nerve.process.orphans import wait_for_orphans

        if not self._has_no_orphans:
            await wait_for_orphans()
            self._has_no_orphans = True

    def slots_of(self, provider: str) -> int:
        """Return how many agents of a provider may run at the same time."""
        return self.slots.get(provider, DEFAULT_SLOTS)

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Return for each provider its slots, how many are busy, and until when it is rate limited."""
        names = {*self.slots, *self._semaphores, *self.rate_limits.limited}
        snapshot: dict[str, dict[str, float]] = {}
        for name in sorted(names):
            slots, semaphore = self.slots_of(name), self._semaphores.get(name)
            busy = slots - semaphore._value if semaphore is not None else 0
            snapshot[name] = {"slots": slots, "busy": busy}
            if (until := self.rate_limits.limited.get(name)) is not None:
                snapshot[name]["limited_until"] = until
        return snapshot


class ProviderSlot:
    """The slot of one turn, which can be released while a person is asked."""

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore = semaphore
        self._is_held = False
        self._acquire_lock = asyncio.Lock()

    async def acquire(self) -> None:
        async with self._acquire_lock:
            if not self._is_held:
                await self._semaphore.acquire()
                self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._semaphore.release()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Release the slot inside the block; a cancelled turn does not acquire it again."""
        self.release()
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.acquire()
            raise
        await self.acquire()
