"""Convert the JSON lines that Claude Code prints to chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nerve.agents.provider import (
    AssistantText,
    Chunk,
    Reasoning,
    ThreadStarted,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnOutcome,
    TurnUsage,
)
from nerve.agents.rate_limits import failure_outcome

NO_CONVERSATION_TEXT = "No conversation found"
ANSWER_TOOL = "StructuredOutput"
"""The tool that the program uses to return a structured answer; it has no effect."""
STRUCTURED_ANSWER_TEXT = "Structured output provided successfully"
USAGE_KEYS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
MODEL_USAGE_KEYS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadInputTokens",
    "cache_write_tokens": "cacheCreationInputTokens",
    "cost": "costUSD",
}


class StreamJsonReader:
    """Reads one turn, line by line; the last line sets `done`."""

    def __init__(self, totals: Mapping[str, Any], is_resumed: bool) -> None:
        self._totals, self._is_resumed = totals, is_resumed
        self._model: str | None = None
        self._usage_by_message: dict[str, Mapping[str, Any]] = {}
        self._resets_at: float | None = None
        self.done: TurnFinished | None = None

    def read_message(self, line: Mapping[str, Any]) -> Iterator[Chunk]:
        match line:
            case {"type": "system", "subtype": "init", "session_id": str(thread)}:
                self._model = line.get("model")
                yield ThreadStarted(thread)
            case {
                "type": "stream_event",
                "event": {
                    "type": "content_block_delta",
                    "delta": {"type": "text_delta", "text": str(text)},
                },
            } if text and not line.get("parent_tool_use_id"):
                yield AssistantText(text, partial=True)
            case {"type": "assistant", "message": dict(message)} if not line.get("is_api_error_message"):
                is_subagent = bool(line.get("parent_tool_use_id"))
                for block in list_or_empty(message.get("content")):
                    match block:
                        case {"type": "text", "text": str(text)} if text and not is_subagent:
                            yield AssistantText(text)
                        case {"type": "thinking", "thinking": str(text)} if text and not is_subagent:
                            yield Reasoning(text)
                        case {"type": "tool_use", "name": str(name), "id": str(id)} if name != ANSWER_TOOL:
                            yield ToolCall(name, dict_or_empty(block.get("input")), id)
                match message:
                    case {"id": str(id), "usage": dict(used)} if used != self._usage_by_message.get(id):
                        self._usage_by_message[id] = used
                        counts = {
                            name: sum(
                                number_or_zero(used.get(key)) for used in self._usage_by_message.values()
                            )
                            for name, key in USAGE_KEYS.items()
                        }
                        yield TurnUsage(**counts, model=self._model)
            case {"type": "user", "message": {"content": list(blocks)}}:
                for block in blocks:
                    match block:
                        case {"type": "tool_result", "tool_use_id": str(id), **result} if (
                            result.get("content") != STRUCTURED_ANSWER_TEXT
                        ):
                            status: Any = "failed" if result.get("is_error") else "completed"
                            yield ToolUpdate(id, status, claude_content_text(result.get("content")))
            case {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": int(at)}}:
                self._resets_at = float(at)
            case {"type": "result", "session_id": str()}:
                outcome, error = claude_outcome(line)
                totals = model_totals(line.get("modelUsage")) or self._totals
                self.done = TurnFinished(
                    line["session_id"],
                    self._turn_usage(line, totals),
                    outcome,
                    error,
                    line.get("structured_output"),
                    self._resets_at if outcome == "limited" else None,
                    totals,
                )
                yield self.done

    @property
    def is_missing_session(self) -> bool:
        """Whether the conversation to resume does not exist."""
        return self.done is not None and self._model is None and NO_CONVERSATION_TEXT in self.done.error

    def _turn_usage(self, line: Mapping[str, Any], totals: Mapping[str, Any]) -> TurnUsage:
        """Return the usage since the last count. The program counts per conversation, including a forked one.

        The next turn therefore includes an interrupted turn. But the program saves its count only when it
        exits by itself: after a kill it continues from an older count, and the total grows by less than the
        turn used. `usage` excludes the usage of sub-agents.
        """
        reported = dict_or_empty(line.get("usage"))
        reported_counts: dict[str, Any] = {name: reported.get(key) for name, key in USAGE_KEYS.items()}
        if not isinstance(line.get("modelUsage"), dict):
            return TurnUsage(**reported_counts, model=self._model)
        if not self._is_resumed:
            return self._usage_since(totals, {})
        since_last_result = model_totals(line.get("model_usage_since_last_result"))
        if self._totals and has_grown_by(totals, self._totals, since_last_result or reported_counts):
            return self._usage_since(totals, self._totals)
        return (
            self._usage_since(since_last_result, {})
            if since_last_result
            else TurnUsage(**reported_counts, model=self._model)
        )

    def _usage_since(self, totals: Mapping[str, Any], before: Mapping[str, Any]) -> TurnUsage:
        """Return the growth of the totals, for all models together and for each."""
        models, models_before = dict_or_empty(totals.get("models")), dict_or_empty(before.get("models"))
        parts = [
            usage_difference(name, counts, dict_or_empty(models_before.get(name)))
            for name, counts in models.items()
        ]
        used_parts = sorted(
            (part for part in parts if any(getattr(part, name) for name in MODEL_USAGE_KEYS)),
            key=lambda p: p.model != self._model,
        )
        total = usage_difference(self._model, totals, before)
        has_parts = len(used_parts) > 1 and (bool(models_before) or not before)
        return replace(total, parts=tuple(used_parts)) if has_parts else total


def model_totals(models: Any) -> dict[str, Any]:
    """Return the counts of all models together and of each; empty without models."""
    by_model = {
        str(model): {
            name: number_or_zero(dict_or_empty(entry).get(key)) for name, key in MODEL_USAGE_KEYS.items()
        }
        for model, entry in dict_or_empty(models).items()
    }
    if not by_model:
        return {}
    return {name: sum(counts[name] for counts in by_model.values()) for name in MODEL_USAGE_KEYS} | {
        "models": by_model
    }


def usage_difference(model: str | None, totals: Mapping[str, Any], before: Mapping[str, Any]) -> TurnUsage:
    counts = {name: totals.get(name, 0) - before.get(name, 0) for name in MODEL_USAGE_KEYS}
    return TurnUsage(**counts, model=model)


def has_grown_by(totals: Mapping[str, Any], before: Mapping[str, Any], by: Mapping[str, Any]) -> bool:
    """Return whether the totals grew by at least that much."""
    return all(
        totals.get(name, 0) - before.get(name, 0) >= number_or_zero(by.get(name)) for name in USAGE_KEYS
    )


def claude_content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [dict_or_empty(part) for part in list_or_empty(content)]
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def claude_outcome(line: Mapping[str, Any]) -> tuple[TurnOutcome, str]:
    """Return how a turn ended, from its last line; neither `subtype` nor the exit code shows it."""
    reason = str(line.get("terminal_reason") or ("" if line.get("is_error") else "completed"))
    if not line.get("is_error") and reason == "completed":
        return "completed", ""
    errors = "; ".join(str(error) for error in list_or_empty(line.get("errors")))
    result = line.get("result")
    error = (
        (errors or (result.strip() if isinstance(result, str) and line.get("is_error") else ""))
        or reason.replace("_", " ")
        or "unknown error"
    )
    if reason.startswith("aborted"):
        return "interrupted", error
    if reason != "api_error" and line.get("api_error_status") is None:
        return "failed", error
    return failure_outcome(error, "claude", line.get("api_error_status")), error


# Another version of the program may use another format: ignore what does not match.


def list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def dict_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number_or_zero(value: Any) -> Any:
    return value if isinstance(value, int | float) else 0
