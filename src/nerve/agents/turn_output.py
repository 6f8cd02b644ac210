"""The output of an agent in one turn: emitted to subscribers as it arrives, and kept for the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, field
from typing import Any

from nerve.agents.provider import (
    AgentEnded,
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
from nerve.lazy_dataclass import dataclass

MAX_ENTRY_CHARS = 8_000_000
"""Characters of one message or tool call kept in the journal; subscribers receive fewer."""
PARTIAL_INTERVAL_S = 0.2
"""Seconds between two parts of a message or of the output of a tool to subscribers."""
MAX_TOOL_PART_CHARS = 20_000
"""Characters of the output of a running tool in one event: the last ones. The end of the call has all."""
PARTS_PER_INTERVAL = 20
"""Parts of the output of a tool after which the interval grows by its first length."""
MAX_OUTPUT_CHARS = 1_000_000
"""Characters of the answer kept in the result."""
MAX_LAST_WORDS_CHARS = 200
"""Characters of an unfinished message in the error of an agent that has ended."""


@dataclass(slots=True)
class ToolOutput:
    """The output of a running tool that subscribers have not received yet."""

    redactor: Redactor
    parts: list[str] = field(default_factory=list)
    chars: int = 0
    """Characters in the parts."""
    dropped_chars: int = 0
    emitted_parts: int = 0
    next_at: float = 0.0

    def append(self, text: str) -> None:
        self.parts.append(text)
        self.chars += len(text)
        if self.chars > 2 * MAX_TOOL_PART_CHARS:
            self._drop_beginning()

    def _drop_beginning(self) -> None:
        text = self.redactor.redact_text("".join(self.parts))  # before a secret is cut
        self.dropped_chars += max(0, len(text) - MAX_TOOL_PART_CHARS)
        self.parts = [text[-MAX_TOOL_PART_CHARS:]]
        self.chars = len(self.parts[0])

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self.next_at

    def take(self) -> tuple[str, int]:
        """Return the pending output and how many characters before it were dropped."""
        self._drop_beginning()
        (text, rest), dropped = self.redactor.redact_partial(self.parts[0]), self.dropped_chars
        self.parts, self.chars, self.dropped_chars = [rest] if rest else [], len(rest), 0
        self.emitted_parts += 1
        interval = PARTIAL_INTERVAL_S * (1 + self.emitted_parts // PARTS_PER_INTERVAL)
        self.next_at = time.monotonic() + interval
        return text, dropped


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
    unfinished_text: list[str] = field(default_factory=list)
    """The parts of the message that the agent is writing."""
    tool_outputs: dict[str, ToolOutput] = field(default_factory=dict)
    """The output of the running tools, by the id of the call."""
    last_partial_at: float = 0.0
    flush_timer: asyncio.TimerHandle | None = None
    """Emits the pending parts, even if the agent pauses."""

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
            raise AgentEnded("The agent ended before it finished its turn; its output may be incomplete")
        except AgentEnded as error:
            error.args = (f"{error}. {self.keep_unfinished_text()}",)
            raise
        finally:
            self.stop_flush_timer()
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()

    async def on_thread_started(self, thread: str) -> None:
        """Record the thread id, so the conversation can be resumed after a crash."""
        if thread != self.thread:
            self.thread = thread
            await self.record_thread(thread)

    def handle_chunk(self, chunk: Chunk) -> None:
        emit = self.context.emit
        self.has_output = self.has_output or isinstance(chunk, AssistantText | Reasoning | ToolCall)
        if self.tool_outputs and not isinstance(chunk, ToolUpdate):
            self.flush_tool_outputs()
        match chunk:
            case AssistantText(content, partial=True):
                self.emit_partial(content)
            case AssistantText(content):
                self.pending_parts.clear()
                self.unfinished_text.clear()
                self.append_message(content)
                emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": "assistant", **bounded_text_data(content)})
            case Reasoning(content):
                emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": "thought", **bounded_text_data(content)})
            case ToolCall(name, tool_input, id):
                self.tool_count += 1
                call = {"name": name, "input": bounded_tool_input(dict(tool_input))}
                emit(WorkflowEventType.TOOL_CALL, call | ({"id": id} if id else {}))
            case ToolUpdate(id, "running", output):
                self.append_tool_output(id, output)
            case ToolUpdate(id, status, output):
                self.tool_outputs.pop(id, None)
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

    async def record_tool_call(self, call: ToolCall) -> None:
        """Record a call that Nerve executes: it is on disk before the tool begins."""
        self.tool_count += 1
        self.has_output = True
        self.flush_tool_outputs()
        data = {"name": call.name, "input": bounded_tool_input(dict(call.input)), "id": call.id}
        await self.context.leaf_runtime.record(
            self.context.path, WorkflowEventType.TOOL_CALL, self.redactor.redact_value(data)
        )

    def emit_partial(self, content: str) -> None:
        """Emit the growing message a few times a second; it has many parts, and the full text follows."""
        self.pending_parts.append(content)
        self.unfinished_text.append(content)
        if time.monotonic() - self.last_partial_at >= PARTIAL_INTERVAL_S:
            self.flush_partial()
        else:
            self.start_flush_timer()

    def flush_partial(self) -> None:
        self.last_partial_at = time.monotonic()
        text, rest = self.redactor.redact_partial("".join(self.pending_parts))
        self.pending_parts = [rest] if rest else []
        if text:
            self.context.emit(
                WorkflowEventType.OUTPUT_CHUNK, {"stream": "partial", **bounded_text_data(text)}
            )

    def append_tool_output(self, id: str, text: str) -> None:
        """Collect the output of a running tool; a chatty one causes few events, ever less often."""
        output = self.tool_outputs.setdefault(id, ToolOutput(self.redactor))
        output.append(text)
        if output.is_due:
            self.emit_tool_output(id, output)
        else:
            self.start_flush_timer()

    def emit_tool_output(self, id: str, output: ToolOutput) -> None:
        text, dropped = output.take()
        if text:
            data: dict[str, Any] = {"id": id, "status": "running", "text": text}
            self.context.emit(
                WorkflowEventType.TOOL_CALL, data | ({"dropped_characters": dropped} if dropped else {})
            )

    def flush_tool_outputs(self) -> None:
        for id, output in self.tool_outputs.items():
            if output.is_due:
                self.emit_tool_output(id, output)

    def start_flush_timer(self) -> None:
        if self.flush_timer is None:
            self.flush_timer = asyncio.get_running_loop().call_later(PARTIAL_INTERVAL_S, self.flush_pending)

    def stop_flush_timer(self) -> None:
        if self.flush_timer is not None:
            self.flush_timer.cancel()
            self.flush_timer = None

    def flush_pending(self) -> None:
        """Emit what the agent has written before it paused."""
        self.flush_timer = None
        if any(self.pending_parts):
            self.flush_partial()
        self.flush_tool_outputs()
        if any(output.parts for output in self.tool_outputs.values()):
            self.start_flush_timer()

    def keep_unfinished_text(self) -> str:
        """Keep the message that the agent was writing when it ended, and return what it had written."""
        text = self.redactor.redact_text("".join(self.unfinished_text))
        if text:
            self.handle_chunk(AssistantText(text))
            return f"It had written: …{' '.join(text.split())[-MAX_LAST_WORDS_CHARS:]}"
        return "It had written its last message." if self.messages else "It had not written anything."

    def finish_silent_turn(self, thread: str) -> TurnFinished:
        """End the turn of an agent that was stopped because it was silent; its usage is unknown."""
        self.done = TurnFinished(self.thread or thread)
        return self.done

    def append_message(self, content: str) -> None:
        room = max(0, MAX_OUTPUT_CHARS - self.output_chars)
        dropped = max(0, len(content) - room)
        if dropped and not self.dropped_chars:
            self.context.emit(
                WorkflowEventType.LOG,
                {
                    "level": "warning",
                    "message": f"The answer is longer than {MAX_OUTPUT_CHARS:,} characters: the result has"
                    " its beginning, and `nerve events` all of it",
                },
            )
        self.dropped_chars += dropped
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
