"""Convert the messages of an ACP agent during a turn to chunks; independent of its process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from nerve.agents.provider import (
    AssistantText,
    Chunk,
    PermissionRequest,
    PlanUpdate,
    Reasoning,
    ToolCall,
    ToolUpdate,
    TurnUsage,
)
from nerve.lazy_dataclass import dataclass

JsonObject = Mapping[str, Any]


@dataclass(slots=True)
class ToolCallState:
    """The known state of a tool call; agents start it before they know its input."""

    id: str
    kind: str = "other"
    title: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    changes: list[JsonObject] = field(default_factory=list)
    locations: list[JsonObject] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    agent_tool_name: str = ""
    output: str = ""
    """The output so far; an update has all of it."""
    is_emitted: bool = False

    def merge_update(self, update: JsonObject) -> None:
        self.kind = update.get("kind") or self.kind
        self.title = update.get("title") or self.title
        match update.get("rawInput"):
            case dict(value) if value:
                self.input = value
            case None | {}:
                pass
            case value:
                self.input = {"input": value}
        if (content := update.get("content")) is not None:
            self.changes = [
                {name: value for name, value in part.items() if name != "type"}
                for part in content
                if part.get("type") == "diff"
            ]
            self.texts = [text for part in content if (text := acp_content_text(part.get("content")))]
        if (locations := update.get("locations")) is not None:
            self.locations = [dict(location) for location in locations]
        for extra in (update.get("_meta") or {}).values():
            if isinstance(extra, dict) and isinstance(name := extra.get("toolName"), str):
                self.agent_tool_name = name

    def take_new_output(self, output: str) -> str:
        """Return what an update adds to the output; all of it, if the update replaces the output."""
        before, self.output = self.output, output or self.output
        return output.removeprefix(before)

    def input_or_title(self) -> dict[str, Any]:
        """Return the input, or the title for an agent that does not report the input."""
        return self.input or {"title": self.title}


class UpdateReader:
    """The state of a turn read so far."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCallState] = {}
        self.cost: float | None = None
        """In US dollars, over the whole session, as last reported."""
        self._message_parts: list[str] = []
        self._message_id: str | None = None

    def read_update(self, update: JsonObject) -> Iterator[Chunk]:
        """Yield the chunks of one `session/update`."""
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            yield from self._read_message_chunk(update)
            return
        if kind in ("agent_thought_chunk", "tool_call", "tool_call_update", "plan"):
            yield from self._flush_message()
        match kind:
            case "agent_thought_chunk":
                if text := acp_content_text(update.get("content")):
                    yield Reasoning(text)
            case "tool_call" | "tool_call_update":
                call = self._merge_call(update)
                reported = update.get("status")
                status: Any = reported if reported in ("completed", "failed") else "running"
                # Before it starts, an agent may still add to the input.
                if (call.input and reported != "pending") or status != "running":
                    yield from self._emit_call(call)
                output = acp_tool_output(update)
                if call.is_emitted and status != "running":
                    yield ToolUpdate(call.id, status, output)
                elif call.is_emitted and (new_output := call.take_new_output(output)):
                    yield ToolUpdate(call.id, "running", new_output)
            case "plan":
                yield PlanUpdate([dict(entry) for entry in update.get("entries") or ()])
            case "usage_update":
                cost = update.get("cost") or {}
                if cost.get("currency") == "USD":
                    self.cost = cost.get("amount")

    def read_permission_request(
        self, call: JsonObject, cwd: str = ""
    ) -> tuple[list[Chunk], PermissionRequest]:
        """Return the chunks to emit before a permission request, and the request."""
        state = self._merge_call(call)
        return [*self._flush_message(), *self._emit_call(state)], permission_request(state, cwd)

    def finish(self) -> Iterator[Chunk]:
        """Yield the remaining chunks at the end of the turn."""
        yield from self._flush_message()
        for call in self.calls.values():
            yield from self._emit_call(call)

    def _read_message_chunk(self, update: JsonObject) -> Iterator[Chunk]:
        text = acp_content_text(update.get("content"))
        if not text:
            return
        message_id = update.get("messageId")
        if message_id != self._message_id:
            yield from self._flush_message()
        self._message_id = message_id
        self._message_parts.append(text)
        yield AssistantText(text, partial=True)

    def _flush_message(self) -> Iterator[Chunk]:
        if self._message_parts:
            yield AssistantText("".join(self._message_parts))
            self._message_parts.clear()

    def _merge_call(self, update: JsonObject) -> ToolCallState:
        call = self.calls.setdefault(update["toolCallId"], ToolCallState(update["toolCallId"]))
        call.merge_update(update)
        return call

    def _emit_call(self, call: ToolCallState) -> Iterator[Chunk]:
        if not call.is_emitted:
            call.is_emitted = True
            yield ToolCall(call.kind, call.input_or_title(), call.id)


def permission_request(call: ToolCallState, cwd: str) -> PermissionRequest:
    names = (call.agent_tool_name,) if call.agent_tool_name else ()
    details = call.input_or_title()
    for key, more in (("changes", call.changes), ("locations", call.locations), ("content", call.texts)):
        if more:
            details = details | {key: [*more, details[key]] if key in details else more}
    return PermissionRequest(call.kind, details, call.title, cwd, names)


def acp_tool_output(update: JsonObject) -> str:
    """Return the output of a tool: its content, or its raw output."""
    texts = []
    for part in update.get("content") or ():
        match part:
            case {"type": "content", "content": content}:
                texts.append(acp_content_text(content))
            case {"type": "diff", "path": path}:
                texts.append(f"changed {path}")
    if any(texts):
        return "\n".join(filter(None, texts))
    raw = update.get("rawOutput")
    return raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)


def acp_content_text(content: Any) -> str:
    match content:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
    return ""


def acp_turn_usage(answer: JsonObject, model: str | None) -> TurnUsage:
    """Return the usage that the response to a prompt reports."""
    match answer:
        case {"usage": dict(tokens)}:
            return usage_from_tokens(tokens, model)
        case {
            "_meta": {
                "quota": {
                    "token_count": {"input_tokens": input_tokens, "output_tokens": output_tokens},
                    **more,
                }
            }
        }:
            match more:
                case {"model_usage": [{"model": str(only_model)}]}:
                    model = f"google:{only_model}"
            return TurnUsage(input_tokens, output_tokens, model=model)
    return TurnUsage(model=model)


def usage_from_tokens(tokens: JsonObject, model: str | None) -> TurnUsage:
    """Count every token once.

    Some agents include cached tokens in the input and some do not; their total shows which.
    """
    input_tokens, output_tokens, total = (
        tokens["inputTokens"],
        tokens["outputTokens"],
        tokens.get("totalTokens") or 0,
    )
    read, write = tokens.get("cachedReadTokens"), tokens.get("cachedWriteTokens")
    cached = (read or 0) + (write or 0)
    if cached and cached <= input_tokens and total < input_tokens + output_tokens + cached:
        input_tokens -= cached
    thought_tokens = tokens.get("thoughtTokens") or 0
    if thought_tokens and total == input_tokens + output_tokens + cached + thought_tokens:
        output_tokens += thought_tokens
    return TurnUsage(input_tokens, output_tokens, read, write, model=model)
