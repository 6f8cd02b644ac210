"""Concurrency slots and rate limits of providers, shared by all runs of a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

DEFAULT_SLOTS = 4
"""Default number of agents of one provider that run at the same time."""
LIMIT_PAUSES_S = (60.0, 120.0, 300.0, 900.0)
"""Backoff in seconds for consecutive rate limits without a reset time."""


class ProviderSlots:
    """The provider slots and rate limits that all runs of a session share."""

    def __init__(
        self, slots: Mapping[str, int] | None = None, limited: Mapping[str, float] | None = None
    ) -> None:
        self.slots = {name: validate_slot_count(name, number) for name, number in (slots or {}).items()}
        self.limited: dict[str, float] = dict(limited or {})
        """Rate-limited providers, with the Unix timestamp at which the limit ends."""
        self._refusals: dict[str, int] = {}
        self._available_events: dict[str, asyncio.Event] = {}
        """Wakes the waiters of a provider when its limit ends early."""
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._thread_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._has_no_orphans = False

    @asynccontextmanager
    async def acquire(self, provider: str, thread: str | None) -> AsyncIterator[ProviderSlot]:
        """Hold a slot of the provider for one turn; turns of the same thread never overlap."""
        semaphore = self._semaphores.setdefault(
            provider, asyncio.Semaphore(self.slots.get(provider, DEFAULT_SLOTS))
        )
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

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Return for each provider its slots, how many are busy, and until when it is rate limited."""
        names = {*self.slots, *self._semaphores, *self.limited}
        return {name: self._provider_snapshot(name) for name in sorted(names)}

    def _provider_snapshot(self, provider: str) -> dict[str, float]:
        slots = self.slots.get(provider, DEFAULT_SLOTS)
        semaphore = self._semaphores.get(provider)
        snapshot: dict[str, float] = {
            "slots": slots,
            "busy": slots - semaphore._value if semaphore is not None else 0,
        }
        until = self.limited.get(provider)
        return snapshot if until is None else snapshot | {"limited_until": until}

    def is_limited(self, provider: str) -> bool:
        return self.limited.get(provider, 0.0) > time.time()

    def refusals(self, provider: str) -> int:
        """Return how often the provider has refused since its last answer; concurrent refusals count once."""
        return self._refusals.get(provider, 0)

    def mark_limited(self, provider: str, until: float | None, refusal_count: int | None = None) -> float:
        """Mark the provider as rate limited and return when to try again.

        `refusal_count` is the value of `refusals()` before the query: a query that started before an earlier
        refusal was known counts as the same refusal, and does not lengthen the backoff.
        """
        now, before = time.time(), self.limited.get(provider, 0.0)
        if refusal_count is None or refusal_count >= self.refusals(provider):
            self._refusals[provider] = self.refusals(provider) + 1
        refusal_count = self._refusals[provider]
        if until is None:
            until = (
                before if before > now else now + LIMIT_PAUSES_S[min(refusal_count, len(LIMIT_PAUSES_S)) - 1]
            )
        elif until <= now:
            until = now + min(refusal_count, LIMIT_PAUSES_S[0])
        self.limited[provider] = max(until, before)
        return self.limited[provider]

    async def wait_until_available(
        self, provider: str, on_limited: Callable[[float], Awaitable[None]]
    ) -> bool:
        """Wait until the provider is not limited, and return whether it was; report each new end time."""
        announced_until = 0.0
        while (until := self.limited.get(provider, 0.0)) > (now := time.time()):
            if until > announced_until:
                await on_limited(until)
                announced_until = until
                continue  # the limit may have ended during the callback
            available = self._available_events.setdefault(provider, asyncio.Event())
            with suppress(TimeoutError):
                await asyncio.wait_for(available.wait(), until - now)
        if announced_until:
            self.limited.pop(provider, None)
        return announced_until > 0

    def mark_available(self, provider: str) -> bool:
        """End the rate limit after an answer and wake all waiters; return whether a limit was active."""
        self._refusals.pop(provider, None)
        if (available := self._available_events.pop(provider, None)) is not None:
            available.set()
        return self.limited.pop(provider, 0.0) > time.time()


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


def validate_slot_count(provider: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"slots of '{provider}' must be an integer of at least 1, got {number!r}")
    return number
