"""Provider slots that all workers share, for the agents of one worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import uuid4

from nerve.errors import StoreError

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""How long the slot of a worker that is gone stays taken."""
FIRST_POLL_S, MAX_POLL_S = 0.05, 1.0
"""The first and the longest pause between two requests for a slot."""


class SlotStore(Protocol):
    """Where the slots are stored; its methods block and can be called from any thread."""

    def take(self, provider: str, slot: str, number: int, lease: float) -> bool: ...

    def renew(self, slots: Sequence[str], lease: float) -> set[str]: ...

    def release(self, slot: str) -> None: ...

    def limited_until(self, provider: str) -> float: ...

    def share_limit(self, provider: str, until: float) -> None: ...

    def read_usage(self) -> dict[str, tuple[int, float]]: ...


class ClusterSlots:
    """Takes slots, and keeps them as long as this process runs.

    While the store cannot be reached, no slot is taken, and those that are taken stay with their turns.
    """

    def __init__(self, store: SlotStore, lease: float = LEASE_S) -> None:
        self._store, self._lease = store, lease
        self._held: set[str] = set()
        self._renewal: asyncio.Task[None] | None = None

    async def acquire(self, provider: str, number: int) -> str:
        """Return a slot as soon as fewer than `number` of the provider are taken."""
        slot, pause = str(uuid4()), FIRST_POLL_S
        while not await self._try_to_take(provider, slot, number):
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_POLL_S)
        return slot

    async def _try_to_take(self, provider: str, slot: str, number: int) -> bool:
        taking = asyncio.ensure_future(
            asyncio.to_thread(self._store.take, provider, slot, number, self._lease)
        )
        try:
            is_taken = await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The thread cannot be cancelled, and may have taken the slot.
            await asyncio.wait([taking])
            await self.release(slot)
            raise
        except StoreError as error:
            log.warning("No slot of %s can be taken: %s", provider, error)
            return False
        if is_taken:
            self._held.add(slot)
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.ensure_future(self._renew())
        return is_taken

    async def _renew(self) -> None:
        """Renew the leases until no slot is held."""
        while self._held:
            await asyncio.sleep(self._lease / 3)
            slots = list(self._held)
            try:
                # A process that slept may have lost slots to others.
                self._held -= set(slots) - await asyncio.to_thread(self._store.renew, slots, self._lease)
            except StoreError as error:
                log.warning("The slots of this worker cannot be renewed: %s", error)

    def is_held(self, slot: str) -> bool:
        """Whether no other process was found to have a slot."""
        return slot in self._held

    async def release(self, slot: str) -> None:
        """Release a slot; without the store, it becomes free when its lease ends."""
        self._held.discard(slot)
        try:
            await asyncio.to_thread(self._store.release, slot)
        except StoreError as error:
            log.warning("A slot of this worker cannot be released: %s", error)

    async def limited_until(self, provider: str) -> float:
        """Return when the rate limit of a provider ends that any worker has met."""
        try:
            return await asyncio.to_thread(self._store.limited_until, provider)
        except StoreError as error:
            log.warning("The rate limits of the other workers cannot be read: %s", error)
            return 0.0

    async def share_limit(self, provider: str, until: float) -> None:
        """Tell all workers when the rate limit of a provider ends."""
        try:
            await asyncio.to_thread(self._store.share_limit, provider, until)
        except StoreError as error:
            log.warning("The rate limit of %s cannot be shared: %s", provider, error)

    def read_usage(self) -> Mapping[str, tuple[int, float]]:
        """Return the slots and limits of all processes; nothing while the store cannot be reached."""
        try:
            return self._store.read_usage()
        except StoreError as error:
            log.warning("The slots of the workers cannot be read: %s", error)
            return {}
