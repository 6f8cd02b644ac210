"""What an agent says in one turn: told to watchers as it comes, and kept for the result."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nerve.agents.ledger import read_usage
from nerve.agents.port import (
    Assistant,
    Begun,
    Chunk,
    Done,
    Plan,
    Thought,
    Tool,
    ToolUpdate,
    Usage,
)
from nerve.agents.secrets import NONE, Secrets
from nerve.core.ledger import COUNTS
from nerve.core.nodes.context import ExecutionContext
from nerve.core.values import encode, too_deep
from nerve.errors import NerveError

WHOLE = 8_000_000
"""Characters of one message or tool call that the journal keeps; watchers are shown less of it."""
PACE = 0.2
"""Seconds between two pieces of a message that watchers are shown."""
OUTPUT_LIMIT = 1_000_000
"""Characters of the answer that the result keeps."""


class AgentEnded(NerveError):
    """The agent ended without saying that it was done."""


@dataclass(slots=True)
class Said:
    """What an agent has said so far in a turn."""

    context: ExecutionContext
    note: Callable[[str], Awaitable[None]]
    """Puts on disk which conversation it is."""
    secrets: Secrets = NONE
    """What is never to be told."""
    thread: str | None = None
    heard: bool = False
    """Whether the agent had anything to say."""
    messages: list[str] = field(default_factory=list)
    tools: int = 0
    usage: Usage | Mapping[str, Any] | None = None
    done: Done | None = None
    size: int = 0
    dropped: int = 0
    pieces: list[str] = field(default_factory=list)
    """What has come of a message and was not shown yet."""
    shown: float = 0.0

    async def listen(self, chunks: AsyncIterator[Chunk]) -> Done:
        """Take in what is said until the turn is over; the iterator is closed in any case."""
        try:
            async for chunk in chunks:
                if isinstance(chunk, Begun):
                    await self.begun(chunk.thread)
                else:
                    self.take(self.secrets.chunk(chunk))
                if self.done is not None:
                    return self.done
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        raise AgentEnded("the agent ended without saying that it was done; what it said may be incomplete")

    async def begun(self, thread: str) -> None:
        """The conversation has a name, and with it it can be gone on with after a crash of either side."""
        if thread != self.thread:
            self.thread = thread
            await self.note(thread)

    def take(self, chunk: Chunk) -> None:
        emit = self.context.emit
        self.heard = self.heard or isinstance(chunk, Assistant | Thought | Tool)
        match chunk:
            case Assistant(content, partial=True):
                self.piece(content)
            case Assistant(content):
                self.pieces.clear()
                self.keep(content)
                emit("output_chunk", {"stream": "assistant", **bounded(content)})
            case Thought(content):
                emit("output_chunk", {"stream": "thought", **bounded(content)})
            case Tool(name, given, id):
                self.tools += 1
                told = {"name": name, "input": bounded_input(dict(given))}
                emit("tool_call", told | ({"id": id} if id else {}))
            case ToolUpdate(id, status, output):
                emit("tool_call", {"id": id, "status": status, **bounded(output)})
            case Plan(entries):
                emit("plan", {"entries": [dict(entry) for entry in entries]})
            case Usage():
                self.usage = read_usage(chunk)
            case Done():
                self.done, self.thread = chunk, chunk.thread
                self.usage = read_usage(chunk.usage) or self.usage
            case _:
                raise TypeError(f"a provider gives the chunks of its port, not {chunk!r:.200}")

    def piece(self, content: str) -> None:
        """Watchers see a message grow a few times a second; its pieces are many, and the whole follows."""
        self.pieces.append(content)
        if (now := time.monotonic()) - self.shown >= PACE:
            self.shown = now
            text, rest = self.secrets.shown("".join(self.pieces))
            self.pieces = [rest]
            self.context.emit("output_chunk", {"stream": "partial", **bounded(text)})

    def keep(self, content: str) -> None:
        room = max(0, OUTPUT_LIMIT - self.size)
        self.dropped += max(0, len(content) - room)
        self.size += len(content)
        if room:
            self.messages.append(content[:room])

    @property
    def refused(self) -> bool:
        """Whether the turn was over before it began, and took nothing."""
        limited = self.done is not None and self.done.outcome == "limited"
        told = told_of(self.usage)
        return limited and not any(told) and bool(told or not self.heard)

    @property
    def output(self) -> str:
        return "\n\n".join(self.messages)


def told_of(usage: Usage | Mapping[str, Any] | None) -> list[Any]:
    """What is known of what a turn took; there may be nothing known, and it may be known to be nothing."""
    told = usage if isinstance(usage, Mapping) else asdict(usage) if usage is not None else {}
    return [value for name in (*COUNTS, "cost") if (value := told.get(name)) is not None]


def bounded(text: str) -> dict[str, Any]:
    """A text as the journal keeps it, and how much of it was left out."""
    if len(text) <= WHOLE:
        return {"text": text}
    return {"text": text[:WHOLE], "dropped_characters": len(text) - WHOLE}


def bounded_input(given: dict[str, Any]) -> dict[str, Any]:
    text = encode(given, deep=None)
    return given if len(text) <= WHOLE and not too_deep(given) else bounded(text)
