"""Concurrency slots of providers, shared by all runs of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from nerve.agents.rate_limits import RateLimits
from nerve.core.clock import SYSTEM_CLOCK, Clock

DEFAULT_SLOTS = 4
"""Default number of agents of one provider that run at the same time."""


class SharedSlots(Protocol):
    """The slots and rate limits that all processes of a session share."""

    async def acquire(self, provider: str, number: int) -> str:
        """Return a slot as soon as fewer than `number` of the provider are taken in all processes."""

    async def release(self, slot: str) -> None: ...

    async def limited_until(self, provider: str) -> float:
        """Return when the rate limit of a provider ends that any process has met; 0 if there is none."""

    async def share_limit(self, provider: str, until: float) -> None:
        """Tell all processes when the rate limit of a provider ends; 0 if it has ended."""

    def read_usage(self) -> Mapping[str, tuple[int, float]]:
        """Return how many slots of each provider are taken, and when its rate limit ends; 0 without one."""


class ProviderSlots:
    """The slots of each provider, and the rate limits that hold its turns back."""

    shared: SharedSlots | None = None
    """The slots of all processes, where several execute the agents of a session."""

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
            slot = ProviderSlot(semaphore, partial(self._acquire_shared, provider), self._release_shared)
            await slot.acquire()
            try:
                yield slot
            finally:
                await slot.release()

    async def _acquire_shared(self, provider: str) -> str | None:
        """Take a slot of all processes, and learn of the rate limits that they have met meanwhile."""
        if self.shared is None:
            return None
        slot = await self.shared.acquire(provider, self.slots_of(provider))
        if until := await self.shared.limited_until(provider):
            self.rate_limits.limited[provider] = max(until, self.rate_limits.limited.get(provider, 0.0))
        return slot

    async def _release_shared(self, slot: str) -> None:
        if self.shared is not None:
            await self.shared.release(slot)

    async def share_limit(self, provider: str) -> None:
        """Tell the other processes when the rate limit of a provider ends."""
        if self.shared is not None:
            await self.shared.share_limit(provider, self.rate_limits.limited_until(provider))

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
        shared = {} if self.shared is None else self.shared.read_usage()
        names = {*self.slots, *self._semaphores, *self.rate_limits.limited, *shared}
        snapshot: dict[str, dict[str, float]] = {}
        for name in sorted(names):
            slots, semaphore = self.slots_of(name), self._semaphores.get(name)
            busy = slots - semaphore._value if semaphore is not None else 0
            until = self.rate_limits.limited.get(name)
            if name in shared:
                # The agents of this process are among them.
                busy, shared_until = shared[name]
                until = max(until or 0.0, shared_until) or None
            snapshot[name] = {"slots": slots, "busy": busy}
            if until is not None:
                snapshot[name]["limited_until"] = until
        return snapshot


class ProviderSlot:
    """The slot of one turn, which can be released while a person is asked."""

    def __init__(
        self,
        semaphore: asyncio.Semaphore,
        acquire_shared: Callable[[], Awaitable[str | None]],
        release_shared: Callable[[str], Awaitable[None]],
    ) -> None:
        self._semaphore = semaphore
        self._acquire_shared, self._release_shared = acquire_shared, release_shared
        self._shared_slot: str | None = None
        self._is_held = False
        self._acquire_lock = asyncio.Lock()

    async def acquire(self) -> None:
        async with self._acquire_lock:
            if self._is_held:
                return
            await self._semaphore.acquire()
            try:
                self._shared_slot = await self._acquire_shared()
            except BaseException:
                self._semaphore.release()
                raise
            self._is_held = True

    async def release(self) -> None:
        if not self._is_held:
            return
        self._is_held = False
        self._semaphore.release()
        slot, self._shared_slot = self._shared_slot, None
        if slot is not None:
            await self._release_shared(slot)

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Release the slot inside the block; a cancelled turn does not acquire it again."""
        await self.release()
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.acquire()
            raise
        await self.acquire()
