"""The queues of a session, in which the steps and runs of all families wait for the same slots.

A slot belongs to a step or a run, and not to a worker: it is free again when its workflow says so, or has
ended. Who frees a slot gives it to the next entry in the same transaction, and then tells its run.
If the process dies before that, a body worker tells it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from nerve.engine.session_queues import PAUSED_KIND, SessionQueues, row_owner
from nerve.engine.temporal.messages import RunCommand
from nerve.store.postgres_queues import Lane, StoredEntry

if TYPE_CHECKING:
    from nerve.engine.session_queues import QueueInfo
    from nerve.engine.temporal.command_delivery import CommandDelivery

T = TypeVar("T")
MAX_TOLD_RUNS = 500
GRANT_INTERVAL_S = 1.0
"""How often a body worker looks at the queues in which entries wait."""
UNTOLD_AGE_S = 5.0
"""How old a slot is that a body worker reports to the run; who granted it reports the younger ones."""
LOST_CHECKS = 10
"""How many of these looks lie between two checks whether the workflows that hold slots are running."""


class StoredQueues(Protocol):
    """The queues of a session in a transaction."""

    def add(self, entry: StoredEntry) -> list[Lane]: ...

    def remove(self, run: str, path: str, asked: int) -> list[Lane]: ...

    def remove_family(self, family: str) -> list[Lane]: ...

    def tell(self, run: str, path: str) -> bool: ...

    def waiting_lanes(self) -> list[Lane]: ...

    def is_paused(self, kind: str, owner: str) -> bool: ...

    def count_holders(self, lane: Lane) -> int: ...

    def find_next(self, lane: Lane) -> StoredEntry | None: ...

    def seconds_until_start(self, entry: StoredEntry) -> float: ...

    def grant(self, entry: StoredEntry) -> None: ...

    def untold(self, age: float, limit: int) -> list[StoredEntry]: ...

    def families_with_slots(self) -> list[str]: ...


class QueueTables(Protocol):
    """Where they are stored; blocks, and can be called from any thread."""

    def with_queues(self, work: Callable[[StoredQueues], T]) -> T: ...

    def has_waiting_entries(self) -> bool: ...


class QueueExchange(NamedTuple):
    """The result of adding and removing entries."""

    has_slot: list[bool]
    """Whether each entry that was added has a slot."""
    granted: list[StoredEntry]
    """Other entries that have got one, whose runs do not know it yet."""


class ClusterQueues:
    """The queues of one session; its methods block, and can be called from any thread."""

    def __init__(self, tables: QueueTables, session: str) -> None:
        self._tables, self._session = tables, session
        self.has_waiting_entries = tables.has_waiting_entries

    def exchange(self, left: Sequence[tuple[str, str, int]], entries: Sequence[StoredEntry]) -> QueueExchange:
        """Remove entries, given as run, path and number of the request, and add others."""

        def exchange(stored: StoredQueues) -> QueueExchange:
            lanes = [lane for each in left for lane in stored.remove(*each)]
            for entry in entries:
                lanes += [*stored.add(entry), entry.lane]
            granted, _ = self._grant(stored, lanes)
            has_slot = [stored.tell(entry.run, entry.path) for entry in entries]
            own = {(entry.run, entry.path) for entry in entries}
            return QueueExchange(has_slot, [each for each in granted if (each.run, each.path) not in own])

        return self._tables.with_queues(exchange)

    def grant_all(self) -> tuple[list[StoredEntry], float | None]:
        """Give free slots to entries that wait; return these, and seconds until a rate allows the next."""
        return self._tables.with_queues(lambda stored: self._grant(stored, stored.waiting_lanes()))

    def _grant(self, stored: StoredQueues, lanes: Iterable[Lane]) -> tuple[list[StoredEntry], float | None]:
        granted, delays = list[StoredEntry](), list[float]()
        for lane in dict.fromkeys(lanes):
            if stored.is_paused(PAUSED_KIND, row_owner(self._session, lane[0])):
                continue
            holders = stored.count_holders(lane)
            while (entry := stored.find_next(lane)) is not None:
                if entry.concurrency is not None and holders >= entry.concurrency:
                    break
                if (delay := stored.seconds_until_start(entry)) > 0:
                    delays.append(delay)
                    break
                stored.grant(entry)
                granted.append(entry)
                holders += 1
        return granted, min(delays, default=None)

    def untold(self) -> list[StoredEntry]:
        """Return entries whose runs may not know that they have slots."""
        return self._tables.with_queues(lambda stored: stored.untold(UNTOLD_AGE_S, MAX_TOLD_RUNS))

    def confirm(self, entries: Sequence[StoredEntry]) -> None:
        """Note that the runs of some entries know that they have slots."""
        self._tables.with_queues(lambda stored: [stored.tell(each.run, each.path) for each in entries])

    def families_with_slots(self) -> list[str]:
        """Return the families that hold slots for which others wait."""
        return self._tables.with_queues(lambda stored: stored.families_with_slots())

    def remove_families(self, families: Sequence[str]) -> list[StoredEntry]:
        """Remove the entries of families that have ended; return those that get their slots."""

        def remove(stored: StoredQueues) -> list[StoredEntry]:
            lanes = [lane for family in families for lane in stored.remove_family(family)]
            return self._grant(stored, lanes)[0]

        return self._tables.with_queues(remove)


class SlotDelivery:
    """Tells the workflows of runs which slots they have got."""

    def __init__(self, commands: CommandDelivery, queues: ClusterQueues) -> None:
        self.commands, self.queues = commands, queues
        self._looks = 0

    async def deliver(self, entries: Sequence[StoredEntry]) -> None:
        """Tell the runs of entries that they have slots; a family that has ended loses its own."""
        while entries:
            arrivals = await self.commands.send([(each.family, to_command(each)) for each in entries])
            pairs = list(zip(entries, arrivals, strict=True))
            if told := [entry for entry, arrival in pairs if arrival == "taken"]:
                await asyncio.to_thread(self.queues.confirm, told)
            ended = [entry.family for entry, arrival in pairs if arrival == "ended"]
            entries = await asyncio.to_thread(self.queues.remove_families, ended) if ended else []

    async def grant_left(self) -> float:
        """Grant the slots that have become free in another way; return when to look again."""
        if not await asyncio.to_thread(self.queues.has_waiting_entries):
            return GRANT_INTERVAL_S
        self._looks += 1
        if self._looks % LOST_CHECKS == 0:
            await self._remove_lost_families()
        granted, delay = await asyncio.to_thread(self.queues.grant_all)
        await self.deliver([*granted, *await asyncio.to_thread(self.queues.untold)])
        return GRANT_INTERVAL_S if delay is None else min(delay, GRANT_INTERVAL_S)

    async def _remove_lost_families(self) -> None:
        """Free the slots of workflows that were terminated."""
        families = await asyncio.to_thread(self.queues.families_with_slots)
        lost = [family for family in families if not await self.commands.is_running(family)]
        await self.deliver(await asyncio.to_thread(self.queues.remove_families, lost))


class ListedQueues(SessionQueues):
    """The queues of a process that executes no runs: it pauses and lists them as the store has them."""

    def describe_queues(self) -> list[QueueInfo]:
        self.forget()
        return super().describe_queues()


def to_command(entry: StoredEntry) -> RunCommand:
    """Return the command that tells a run of a slot."""
    return RunCommand("slot", entry.run, {"path": entry.path})
