"""What an agent says in one turn: told to watchers as it comes, and kept for the result."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nerve.agents.provider import (
    AssistantText,
    Chunk,
    PlanUpdate,
    Reasoning,
    ThreadStarted,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnUsage,
)
from nerve.agents.redaction import NO_REDACTION, Redactor
from nerve.agents.turn_usage import read_usage
from nerve.core.json_codec import encode_json, is_too_deep
from nerve.core.nodes.context import ExecutionContext
from nerve.core.usage_ledger import TOKEN_FIELDS
from nerve.errors import NerveError

MAX_ENTRY_CHARS = 8_000_000
"""Characters of one message or tool call that the journal keeps; watchers are shown less of it."""
PARTIAL_INTERVAL_S = 0.2
"""Seconds between two pieces of a message that watchers are shown."""
MAX_OUTPUT_CHARS = 1_000_000
"""Characters of the answer that the result keeps."""


class AgentEnded(NerveError):
    """The agent ended without saying that it was done."""


@dataclass(slots=True)
class TurnOutput:
    """What an agent has said so far in a turn."""

    context: ExecutionContext
    record_thread: Callable[[str], Awaitable[None]]
    """Puts on disk which conversation it is."""
    redactor: Redactor = NO_REDACTION
    """What is never to be told."""
    thread: str | None = None
    has_output: bool = False
    """Whether the agent had anything to say."""
    messages: list[str] = field(default_factory=list)
    tool_count: int = 0
    usage: TurnUsage | Mapping[str, Any] | None = None
    done: TurnFinished | None = None
    output_chars: int = 0
    dropped_chars: int = 0
    pending_parts: list[str] = field(default_factory=list)
    """What has come of a message and was not shown yet."""
    last_partial_at: float = 0.0

    async def consume(self, chunks: AsyncIterator[Chunk]) -> TurnFinished:
        """Take in what is said until the turn is over; the iterator is closed in any case."""
        try:
            async for chunk in chunks:
                if isinstance(chunk, ThreadStarted):
                    await self.on_thread_started(chunk.thread)
                else:
                    self.handle_chunk(self.redactor.redact_chunk(chunk))
                if self.done is not None:
                    return self.done
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        raise AgentEnded("the agent ended without saying that it was done; what it said may be incomplete")

    async def on_thread_started(self, thread: str) -> None:
        """The conversation has a name, and with it it can be gone on with after a crash of either side."""
        if thread != self.thread:
            self.thread = thread
            await self.record_thread(thread)

    def handle_chunk(self, chunk: Chunk) -> None:
        emit = self.context.emit
        self.has_output = self.has_output or isinstance(chunk, AssistantText | Reasoning | ToolCall)
        match chunk:
            case AssistantText(content, partial=True):
                self.emit_partial(content)
            case AssistantText(content):
                self.pending_parts.clear()
                self.append_message(content)
                emit("output_chunk", {"stream": "assistant", **bounded_text_data(content)})
            case Reasoning(content):
                emit("output_chunk", {"stream": "thought", **bounded_text_data(content)})
            case ToolCall(name, tool_input, id):
                self.tool_count += 1
                call = {"name": name, "input": bounded_tool_input(dict(tool_input))}
                emit("tool_call", call | ({"id": id} if id else {}))
            case ToolUpdate(id, status, output):
                emit("tool_call", {"id": id, "status": status, **bounded_text_data(output)})
            case PlanUpdate(entries):
                emit("plan", {"entries": [dict(entry) for entry in entries]})
            case TurnUsage():
                self.usage = read_usage(chunk)
            case TurnFinished():
                self.done, self.thread = chunk, chunk.thread
                self.usage = read_usage(chunk.usage) or self.usage
            case _:
                raise TypeError(f"a provider gives the chunks of its port, not {chunk!r:.200}")

    def emit_partial(self, content: str) -> None:
        """Watchers see a message grow a few times a second; its pieces are many, and the whole follows."""
        self.pending_parts.append(content)
        if (now := time.monotonic()) - self.last_partial_at >= PARTIAL_INTERVAL_S:
            self.last_partial_at = now
            text, rest = self.redactor.redact_partial("".join(self.pending_parts))
            self.pending_parts = [rest]
            self.context.emit("output_chunk", {"stream": "partial", **bounded_text_data(text)})

    def append_message(self, content: str) -> None:
        room = max(0, MAX_OUTPUT_CHARS - self.output_chars)
        self.dropped_chars += max(0, len(content) - room)
        self.output_chars += len(content)
        if room:
            self.messages.append(content[:room])

    @property
    def was_refused(self) -> bool:
        """Whether the turn was over before it began, and took nothing."""
        limited = self.done is not None and self.done.outcome == "limited"
        amounts = known_amounts(self.usage)
        return limited and not any(amounts) and bool(amounts or not self.has_output)

    @property
    def output(self) -> str:
        return "\n\n".join(self.messages)


def known_amounts(usage: TurnUsage | Mapping[str, Any] | None) -> list[Any]:
    """What is known of what a turn took; there may be nothing known, and it may be known to be nothing."""
    fields = usage if isinstance(usage, Mapping) else asdict(usage) if usage is not None else {}
    return [value for name in (*TOKEN_FIELDS, "cost") if (value := fields.get(name)) is not None]


def bounded_text_data(text: str) -> dict[str, Any]:
    """A text as the journal keeps it, and how much of it was left out."""
    if len(text) <= MAX_ENTRY_CHARS:
        return {"text": text}
    return {"text": text[:MAX_ENTRY_CHARS], "dropped_characters": len(text) - MAX_ENTRY_CHARS}


def bounded_tool_input(tool_input: dict[str, Any]) -> dict[str, Any]:
    text = encode_json(tool_input, max_depth=None)
    return (
        tool_input
        if len(text) <= MAX_ENTRY_CHARS and not is_too_deep(tool_input)
        else bounded_text_data(text)
    )
