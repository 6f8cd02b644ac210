"""Who is asked to route: in the slots of its provider and within its limit, as any other agent."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime

from nerve.agents.accounts import Accounts
from nerve.agents.port import Capabilities, Chunk, Done, Options, Provider
from nerve.router.routing import closing


class Accounted:
    """A provider that takes a slot for each turn; while it is limited, it says so and is not asked."""

    def __init__(self, provider: Provider, accounts: Accounts) -> None:
        self.provider, self.accounts = provider, accounts
        self.name, self.capabilities = provider.name, provider.capabilities

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        if not self.limited:
            async with self.accounts.turn(self.name, resume):
                if not self.limited:  # others may have been refused while this one waited for its slot
                    times = self.accounts.times(self.name)
                    async with closing(self.provider.query(prompt, cwd, resume, options)) as chunks:
                        async for chunk in chunks:
                            self.note(chunk, times)
                            yield chunk
                    return
        yield Done(resume or "", outcome="limited", error=f"until {clock(self.limited)}")

    @property
    def limited(self) -> float:
        """Until when the provider refuses everybody; 0 if it does not."""
        until = self.accounts.limited.get(self.name, 0.0)
        return until if until > time.time() else 0.0

    def note(self, chunk: Chunk, times: int) -> None:
        """What the end of a turn means for all who ask the provider."""
        if isinstance(chunk, Done) and chunk.outcome == "limited":
            self.accounts.limit(self.name, chunk.resets_at, times)
        elif isinstance(chunk, Done):
            self.accounts.answered(self.name)


class Missing:
    """An agent that is named and cannot be had; asking it says why."""

    capabilities = Capabilities()

    def __init__(self, name: str, why: Exception) -> None:
        self.name, self.why = name, why

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        raise self.why


def clock(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M")
