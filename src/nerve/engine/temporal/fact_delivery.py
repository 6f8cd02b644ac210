"""Tell runs in Temporal of the facts that they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nerve.engine.temporal.cluster_facts import ClusterFacts, decode_match
from nerve.engine.temporal.messages import RunCommand

if TYPE_CHECKING:
    from nerve.engine.temporal.command_delivery import CommandDelivery
    from nerve.store.postgres_facts import FactWatch

SWEEP_INTERVAL_S = 10.0
SWEEP_AGE_S = 5.0
"""How old a match is that a body worker delivers; who asserted the fact delivers the younger ones."""


class FactDelivery:
    """Sends matches to the workflows of runs, and forgets those that have arrived."""

    def __init__(self, commands: CommandDelivery, facts: ClusterFacts) -> None:
        self.commands, self.facts = commands, facts

    async def deliver(self, watches: Sequence[FactWatch]) -> list[FactWatch]:
        """Tell the runs of some waits of their matches; return those that know it now.

        What fails is left to the body workers.
        """
        arrivals = await self.commands.send([(watch.family, to_command(watch)) for watch in watches])
        told = [watch for watch, each in zip(watches, arrivals, strict=True) if each != "later"]
        if told:
            await asyncio.to_thread(self.facts.delete_matched, told)
        return told

    async def deliver_left(self) -> float:
        """Deliver what processes have not delivered that have ended; return when to do so again."""
        await self.deliver(await asyncio.to_thread(self.facts.matched_watches, SWEEP_AGE_S))
        return SWEEP_INTERVAL_S


def to_command(watch: FactWatch) -> RunCommand:
    """Return the command that settles a wait by its match."""
    assert watch.match is not None
    return RunCommand("fact", watch.run, {"path": watch.path, "match": decode_match(watch.match)})
