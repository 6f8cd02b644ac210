"""The output of an agent in one turn: emitted to subscribers as it arrives, and kept for the result."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, field
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
from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import encode_json, is_too_deep
from nerve.core.nodes.context import ExecutionContext
from nerve.core.usage_ledger import TOKEN_FIELDS
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass

MAX_ENTRY_CHARS = 8_000_000
"""Characters of one message or tool call kept in the journal; subscribers receive fewer."""
PARTIAL_INTERVAL_S = 0.2
"""Seconds between two partial messages to subscribers."""
MAX_OUTPUT_CHARS = 1_000_000
"""Characters of the answer kept in the result."""


class AgentEnded(NerveError):
    """The agent ended without a TurnFinished chunk."""


@dataclass(slots=True)
class TurnOutput:
    """The output of an agent in a turn so far."""

    context: ExecutionContext
    record_thread: Callable[[str], Awaitable[None]]
    """Records the thread id on disk."""
    redactor: Redactor = NO_REDACTION
    """Removes secrets from all output."""
    thread: str | None = None
    has_output: bool = False
    """Whether the agent has produced any output."""
    messages: list[str] = field(default_factory=list)
    tool_count: int = 0
    usage: TurnUsage | Mapping[str, Any] | None = None
    done: TurnFinished | None = None
    output_chars: int = 0
    dropped_chars: int = 0
    pending_parts: list[str] = field(default_factory=list)
    """Partial message text that subscribers have not received yet."""
    last_partial_at: float = 0.0

    async def consume(self, chunks: AsyncIterator[Chunk]) -> TurnFinished:
        """Read chunks until the turn ends; the iterator is closed in any case."""
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
        raise AgentEnded("The agent ended before it finished its turn; its output may be incomplete")

    async def on_thread_started(self, thread: str) -> None:
        """Record the thread id, so the conversation can be resumed after a crash."""
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
                emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": "assistant", **bounded_text_data(content)})
            case Reasoning(content):
                emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": "thought", **bounded_text_data(content)})
            case ToolCall(name, tool_input, id):
                self.tool_count += 1
                call = {"name": name, "input": bounded_tool_input(dict(tool_input))}
                emit(WorkflowEventType.TOOL_CALL, call | ({"id": id} if id else {}))
            case ToolUpdate(id, status, output):
                emit(WorkflowEventType.TOOL_CALL, {"id": id, "status": status, **bounded_text_data(output)})
            case PlanUpdate(entries):
                emit(WorkflowEventType.PLAN, {"entries": [dict(entry) for entry in entries]})
            case TurnUsage():
                self.usage = read_usage(chunk)
            case TurnFinished():
                self.done, self.thread = chunk, chunk.thread
                self.usage = read_usage(chunk.usage) or self.usage
            case _:
                raise TypeError(f"Provider must yield chunks, got {chunk!r:.200}")

    def emit_partial(self, content: str) -> None:
        """Emit the growing message a few times a second; it has many parts, and the full text follows."""
        self.pending_parts.append(content)
        if (now := time.monotonic()) - self.last_partial_at >= PARTIAL_INTERVAL_S:
            self.last_partial_at = now
            text, rest = self.redactor.redact_partial("".join(self.pending_parts))
            self.pending_parts = [rest]
            self.context.emit(
                WorkflowEventType.OUTPUT_CHUNK, {"stream": "partial", **bounded_text_data(text)}
            )

    def append_message(self, content: str) -> None:
        room = max(0, MAX_OUTPUT_CHARS - self.output_chars)
        self.dropped_chars += max(0, len(content) - room)
        self.output_chars += len(content)
        if room:
            self.messages.append(content[:room])

    @property
    def was_refused(self) -> bool:
        """Whether the provider refused the turn before it started, so that it used nothing."""
        limited = self.done is not None and self.done.outcome == "limited"
        usage = asdict(self.usage) if isinstance(self.usage, TurnUsage) else self.usage or {}
        amounts = [value for name in (*TOKEN_FIELDS, "cost") if (value := usage.get(name)) is not None]
        return limited and not any(amounts) and bool(amounts or not self.has_output)

    @property
    def output(self) -> str:
        return "\n\n".join(self.messages)


def bounded_text_data(text: str) -> dict[str, Any]:
    """Return the text as the journal stores it, with the number of dropped characters."""
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
