"""What the lines that Claude Code prints mean, as chunks of the port."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nerve.agents.port import Assistant, Begun, Chunk, Done, Outcome, Thought, Tool, ToolUpdate, Usage

LIMITS = (429, 529)
"""The answers of the API that say: not now."""
LIMITED = re.compile(
    r"\b(hit|reached) your .{0,40}limit\b|\b(usage|rate) limit\b|\bresets (at )?\d", re.IGNORECASE
)
NO_SUCH = "No conversation found"
ANSWER_TOOL = "StructuredOutput"
"""The tool by which the program takes an answer that has a schema; it does nothing."""
COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
TOTALS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadInputTokens",
    "cache_write_tokens": "cacheCreationInputTokens",
    "cost": "costUSD",
}


class Lines:
    """One turn as it is read, line by line; `done` is set by the line that ends it."""

    def __init__(self, totals: Mapping[str, Any], resumed: bool) -> None:
        self._totals, self._resumed = totals, resumed
        self._model: str | None = None
        self._calls: dict[str, Mapping[str, Any]] = {}
        self._resets_at: float | None = None
        self.done: Done | None = None

    def take(self, line: Mapping[str, Any]) -> Iterator[Chunk]:
        match line:
            case {"type": "system", "subtype": "init", "session_id": str(thread)}:
                self._model = line.get("model")
                yield Begun(thread)
            case {"type": "stream_event", "event": dict(event)} if not line.get("parent_tool_use_id"):
                yield from piece(event)
            case {"type": "assistant", "message": dict(message)} if not line.get("is_api_error_message"):
                yield from self._message(message, bool(line.get("parent_tool_use_id")))
            case {"type": "user", "message": {"content": list(blocks)}}:
                yield from results(blocks)
            case {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": int(at)}}:
                self._resets_at = float(at)
            case {"type": "result", "session_id": str()}:
                self.done = self._ended(line)
                yield self.done

    @property
    def missing(self) -> bool:
        """Whether the conversation to go on with does not exist."""
        return self.done is not None and self._model is None and NO_SUCH in self.done.error

    def _message(self, message: Mapping[str, Any], of_helper: bool) -> Iterator[Chunk]:
        """A message comes in lines of one block each; what an agent of its own says is not its answer."""
        for block in listed(message.get("content")):
            match block:
                case {"type": "text", "text": str(text)} if text and not of_helper:
                    yield Assistant(text)
                case {"type": "thinking", "thinking": str(text)} if text and not of_helper:
                    yield Thought(text)
                case {"type": "tool_use", "name": str(name), "id": str(id)} if name != ANSWER_TOOL:
                    yield Tool(name, mapped(block.get("input")), id)
        match message:
            case {"id": str(id), "usage": dict(used)} if used != self._calls.get(id):
                self._calls[id] = used
                yield self._so_far()

    def _so_far(self) -> Usage:
        """What the calls of the API took up to now; the figures of the end are better."""
        counts = {
            name: sum(number(used.get(key)) for used in self._calls.values()) for name, key in COUNTS.items()
        }
        return Usage(**counts, model=self._model)

    def _ended(self, line: Mapping[str, Any]) -> Done:
        outcome, error = outcome_of(line)
        totals = counted(line.get("modelUsage")) or self._totals
        return Done(
            line["session_id"],
            self._used(line, totals),
            outcome,
            error,
            line.get("structured_output"),
            self._resets_at if outcome == "limited" else None,
            totals,
        )

    def _used(self, line: Mapping[str, Any], totals: Mapping[str, Any]) -> Usage:
        """What was not counted yet. The program counts over the conversation, also over one that it forks.

        So a turn that was cut off is in the next one. But it writes its count down only when it ends by
        itself: killed before that, it goes on from an older one, and the total grew by less than the turn
        took. `usage` leaves out what its own agents took.
        """
        told = mapped(line.get("usage"))
        called: dict[str, Any] = {name: told.get(key) for name, key in COUNTS.items()}
        if not isinstance(line.get("modelUsage"), dict):
            return Usage(**called, model=self._model)
        if not self._resumed:
            return self._grown(totals, {})
        own = counted(line.get("model_usage_since_last_result"))
        if self._totals and grew(totals, self._totals, own or called):
            return self._grown(totals, self._totals)
        return self._grown(own, {}) if own else Usage(**called, model=self._model)

    def _grown(self, totals: Mapping[str, Any], before: Mapping[str, Any]) -> Usage:
        """What came to the totals, of all models together and of each."""
        models, known = mapped(totals.get("models")), mapped(before.get("models"))
        parts = [usage(name, counts, mapped(known.get(name))) for name, counts in models.items()]
        taken = sorted((part for part in parts if is_something(part)), key=lambda p: p.model != self._model)
        whole = usage(self._model, totals, before)
        apart = len(taken) > 1 and (bool(known) or not before)
        return replace(whole, parts=tuple(taken)) if apart else whole


def counted(models: Any) -> dict[str, Any]:
    """The counts of all models together, and of each; none if there are no models."""
    each = {
        str(model): {name: number(mapped(told).get(key)) for name, key in TOTALS.items()}
        for model, told in mapped(models).items()
    }
    if not each:
        return {}
    return {name: sum(counts[name] for counts in each.values()) for name in TOTALS} | {"models": each}


def usage(model: str | None, totals: Mapping[str, Any], before: Mapping[str, Any]) -> Usage:
    counts = {name: totals.get(name, 0) - before.get(name, 0) for name in TOTALS}
    return Usage(**counts, model=model)


def grew(totals: Mapping[str, Any], before: Mapping[str, Any], by: Mapping[str, Any]) -> bool:
    """Whether at least that came to the totals."""
    return all(totals.get(name, 0) - before.get(name, 0) >= number(by.get(name)) for name in COUNTS)


def is_something(part: Usage) -> bool:
    return any(getattr(part, name) for name in TOTALS)


def piece(event: Mapping[str, Any]) -> Iterator[Chunk]:
    match event:
        case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}} if text:
            yield Assistant(text, partial=True)


def results(blocks: list[Any]) -> Iterator[Chunk]:
    for block in blocks:
        match block:
            case {"type": "tool_result", "tool_use_id": str(id)} if not structured(block):
                status: Any = "failed" if block.get("is_error") else "completed"
                yield ToolUpdate(id, status, text_of(block.get("content")))


def structured(block: Mapping[str, Any]) -> bool:
    return block.get("content") == "Structured output provided successfully"


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [mapped(part) for part in listed(content)]
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def outcome_of(line: Mapping[str, Any]) -> tuple[Outcome, str]:
    """How a turn ended, from its last line; neither `subtype` nor the exit code say it."""
    reason = str(line.get("terminal_reason") or ("" if line.get("is_error") else "completed"))
    if not line.get("is_error") and reason == "completed":
        return "completed", ""
    error = error_of(line) or reason.replace("_", " ") or "it failed and does not say why"
    if reason.startswith("aborted"):
        return "interrupted", error
    if line.get("api_error_status") in LIMITS or (reason == "api_error" and LIMITED.search(error)):
        return "limited", error
    return "failed", error


def error_of(line: Mapping[str, Any]) -> str:
    errors = "; ".join(str(error) for error in listed(line.get("errors")))
    result = line.get("result")
    return errors or (result.strip() if isinstance(result, str) and line.get("is_error") else "")


# A program of another version may say things in another form: what is not understood is left out.


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def mapped(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: Any) -> Any:
    return value if isinstance(value, int | float) else 0
