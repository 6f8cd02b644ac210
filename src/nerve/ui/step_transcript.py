"""What a step says and does: prompts, streamed text, reasoning, tool calls, printed and logged lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from nerve.core.events import STEP_END_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import result_attributes
from nerve.ui.formatting import format_value

EntryKind = Literal["prompt", "text", "reasoning", "tool", "steer", "plan", "output", "print", "log"]

MAX_ENTRIES = 2000
"""Entries of a step that are kept; the oldest are dropped."""
MAX_ENTRY_CHARS = 200_000
STREAM_KINDS: dict[str, EntryKind] = {"assistant": "text", "thought": "reasoning", "partial": "text"}


@dataclass(slots=True)
class TranscriptEntry:
    """One thing that a step said or did."""

    kind: EntryKind
    at: datetime
    text: str = ""
    is_partial: bool = False
    """Whether the agent is still writing it."""
    name: str = ""
    """Of a tool call: the tool. Of a log record: the logger. Of output: the stream."""
    input: Any = None
    """Of a tool call."""
    status: str = ""
    """Of a tool call: running, completed or failed. Of a log record: its level. Of a steer: who sent it."""
    ended_at: datetime | None = None
    cut_characters: int = 0
    """The number of characters that the event does not have."""


@dataclass(slots=True)
class StepTranscript:
    """The entries of one step, oldest first; `apply_event` takes the events at its path in order."""

    path: str
    entries: list[TranscriptEntry] = field(default_factory=list)
    dropped_entries: int = 0
    thread: str = ""
    provider: str = ""
    model: str = ""
    is_agent: bool = False
    is_running: bool = False
    _tool_calls: dict[str, TranscriptEntry] = field(default_factory=dict)
    _prompt: TranscriptEntry | None = None
    """The input, which is a prompt if the step turns out to be an agent."""

    def apply_event(self, event: WorkflowEvent) -> None:
        data, at = event.data, event.timestamp
        match event.event_type:
            case type if type in STEP_START_EVENTS:
                self.is_running = True
                self._start(data, at)
            case type if type in STEP_END_EVENTS:
                self.is_running = False
                self._end(data, at)
            case WorkflowEventType.OUTPUT_CHUNK:
                self._add_chunk(data, at)
            case WorkflowEventType.TOOL_CALL:
                self._mark_agent()
                self._add_tool_call(data, at)
            case WorkflowEventType.AGENT_THREAD:
                self._mark_agent()
                self.thread = str(data.get("thread") or self.thread)
                self.provider = str(data.get("provider") or self.provider)
            case WorkflowEventType.USAGE:
                self._mark_agent()
                self.model = str(data.get("model") or self.model)
            case WorkflowEventType.STEERED:
                self._add(
                    TranscriptEntry(
                        "steer", at, str(data.get("text") or ""), status=str(data.get("by") or "")
                    )
                )
            case WorkflowEventType.PLAN:
                self._add(TranscriptEntry("plan", at, input=data.get("entries")))
            case WorkflowEventType.LOG:
                text = format_value(data.get("message") or dict(data))
                level, logger = str(data.get("level") or "info"), str(data.get("logger") or "")
                self._add(TranscriptEntry("log", at, text, name=logger, status=level))

    @property
    def text(self) -> str:
        """What an agent has said, or a command has written, so far."""
        texts = [entry for entry in self.entries if entry.kind in ("text", "output")]
        separator = "\n\n" if self.is_agent else ""
        return separator.join(entry.text for entry in texts)

    def _start(self, data: Mapping[str, Any], at: datetime) -> None:
        match data.get("input"):
            case str() as text:
                self._prompt = TranscriptEntry("prompt", at, text)
                if self.is_agent:  # another call of the same agent
                    self._mark_agent()
            case {"prompt": str() as prompt, **more}:
                self.is_agent = True
                self.thread = str(more.get("resume") or self.thread)
                self.model = str(more.get("model") or self.model)
                self._add(TranscriptEntry("prompt", at, prompt))

    def _mark_agent(self) -> None:
        self.is_agent = True
        if self._prompt is not None:
            prompt, self._prompt = self._prompt, None
            self._add(prompt)

    def _end(self, data: Mapping[str, Any], at: datetime) -> None:
        attributes = result_attributes(data)
        if attributes.get("provider"):
            self._mark_agent()
            self.provider = str(attributes["provider"])
            self.thread = str(attributes.get("thread") or self.thread)
            self.model = self.model or str(attributes.get("model") or "")
        for call in self._tool_calls.values():
            if call.ended_at is None:
                call.ended_at, call.status = at, "completed" if data.get("success") else "cancelled"
        self._tool_calls.clear()
        if self.entries and self.entries[-1].is_partial:
            self.entries[-1].is_partial = False

    def _add_chunk(self, data: Mapping[str, Any], at: datetime) -> None:
        stream, text = str(data.get("stream") or "stdout"), str(data.get("text") or "")
        last = self.entries[-1] if self.entries else None
        cut = sum(read_count(data.get(name)) for name in ("cut_characters", "dropped_characters"))
        if stream not in STREAM_KINDS:
            kind: EntryKind = "print" if data.get("printed") else "output"
            if last is not None and (last.kind, last.name) == (kind, stream):
                append_text(last, text, cut)
            else:
                self._add(TranscriptEntry(kind, at, text, name=stream, cut_characters=cut))
            return
        self._mark_agent()
        if last is not None and last.is_partial and last.kind == "text":
            if stream == "partial":
                append_text(last, text, cut)
                return
            if stream == "assistant":  # the whole message replaces its parts
                last.text, last.is_partial, last.cut_characters = text, False, cut
                return
        self._add(
            TranscriptEntry(
                STREAM_KINDS[stream], at, text, is_partial=stream == "partial", cut_characters=cut
            )
        )

    def _add_tool_call(self, data: Mapping[str, Any], at: datetime) -> None:
        call_id = str(data.get("id") or "")
        known = self._tool_calls.get(call_id) if call_id else None
        if known is None:
            if "name" not in data:
                return
            known = TranscriptEntry(
                "tool", at, name=str(data["name"]), input=data.get("input"), status="running"
            )
            self._tool_calls[call_id or f"call {len(self._tool_calls) + 1}"] = known
            self._add(known)
            return
        known.status = str(data.get("status") or known.status)
        text = str(data.get("text") or "")
        if known.status in ("completed", "failed", "cancelled"):
            known.ended_at = at
            if text:  # the whole output replaces its parts
                known.text, known.cut_characters = "", 0
        append_text(known, text, read_count(data.get("dropped_characters")))

    def _add(self, entry: TranscriptEntry) -> None:
        self.entries.append(entry)
        if len(self.entries) > MAX_ENTRIES:
            self.dropped_entries += MAX_ENTRIES // 10
            del self.entries[: MAX_ENTRIES // 10]


def append_text(entry: TranscriptEntry, text: str, cut_characters: int = 0) -> None:
    """Add text to an entry; the beginning of a long one is dropped."""
    entry.text += text
    entry.cut_characters += cut_characters
    if len(entry.text) > 2 * MAX_ENTRY_CHARS:
        entry.cut_characters += len(entry.text) - MAX_ENTRY_CHARS
        entry.text = entry.text[-MAX_ENTRY_CHARS:]


def read_count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
