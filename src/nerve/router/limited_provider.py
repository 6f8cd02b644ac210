"""The provider of the routing agent, with the slots and rate limits of other agents."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime

from nerve.agents.provider import Capabilities, Chunk, Provider, QueryOptions, TurnFinished
from nerve.agents.provider_slots import ProviderSlots
from nerve.router.routing import closing_chunks


class RateLimitedProvider:
    """A provider that takes a slot for each turn; while it is rate-limited, turns end at once."""

    def __init__(self, provider: Provider, provider_slots: ProviderSlots) -> None:
        self.provider, self.provider_slots = provider, provider_slots
        self.name, self.capabilities = provider.name, provider.capabilities

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        if not self.limited_until:
            async with self.provider_slots.acquire(self.name, resume):
                if (
                    not self.limited_until
                ):  # another turn may have hit the limit while this one waited for its slot
                    refusal_count = self.provider_slots.refusals(self.name)
                    async with closing_chunks(self.provider.query(prompt, cwd, resume, options)) as chunks:
                        async for chunk in chunks:
                            self.record_outcome(chunk, refusal_count)
                            yield chunk
                    return
        yield TurnFinished(
            resume or "", outcome="limited", error=f"until {format_reset_time(self.limited_until)}"
        )

    @property
    def limited_until(self) -> float:
        """When the rate limit of the provider ends; 0 if it is not limited."""
        until = self.provider_slots.limited.get(self.name, 0.0)
        return until if until > time.time() else 0.0

    def record_outcome(self, chunk: Chunk, refusal_count: int) -> None:
        """Update the shared rate limit of the provider at the end of a turn."""
        if isinstance(chunk, TurnFinished) and chunk.outcome == "limited":
            self.provider_slots.mark_limited(self.name, chunk.resets_at, refusal_count)
        elif isinstance(chunk, TurnFinished):
            self.provider_slots.mark_available(self.name)


class MissingProvider:
    """Stands for a configured provider that is unavailable; a query raises the reason."""

    capabilities = Capabilities()

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.error = name, error

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        raise self.error


def format_reset_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M")
