"""Convert the notifications of Codex during a turn to chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nerve.agents.provider import (
    AssistantText,
    Chunk,
    PlanUpdate,
    Reasoning,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnOutcome,
    TurnUsage,
)
from nerve.agents.rate_limits import failure_outcome, parse_reset_time
from nerve.core.json_schema import parse_json_answer

LIMIT_ERRORS = ("usageLimitExceeded", "rateLimitExceeded", "serverOverloaded")
NO_ANSWER = "Codex ended its turn without an answer: the model may have refused the request"
TOKEN_KEYS = ("inputTokens", "cachedInputTokens", "cacheWriteInputTokens", "outputTokens")
STATUS_NAMES = {"inProgress": "in_progress"}


class NotificationReader:
    """Reads one turn, message by message; `done` is set at its end."""

    def __init__(self, thread: str, turn: str, model: str | None = None, has_schema: bool = False) -> None:
        self.thread, self.turn = thread, turn
        self.done: TurnFinished | None = None
        self.items: dict[str, Mapping[str, Any]] = {}
        self._model, self._has_schema = model, has_schema
        self._last_message = ""
        """The last message of the agent; empty while it writes another one."""
        self._token_counter = TokenCounter()
        self._limit_windows: Mapping[str, Any] = {}

    def read_notification(self, method: str, params: Mapping[str, Any]) -> Iterator[Chunk]:
        if method == "thread/tokenUsage/updated":
            if params["threadId"] != self.thread or params["turnId"] == self.turn:
                self._token_counter.record_totals(params["threadId"], params["tokenUsage"])
        elif method == "account/rateLimits/updated":
            self._limit_windows = {**self._limit_windows, **without_nulls(params["rateLimits"])}
        elif method == "item/started" and params["threadId"] != self.thread:
            self.items[params["item"]["id"]] = params["item"]  # of a sub-agent, which may request approval
        elif params.get("threadId") == self.thread and self.turn == (
            params.get("turnId") or (params.get("turn") or {}).get("id")
        ):
            yield from self._read_turn_event(method, params)

    def _read_turn_event(self, method: str, params: Mapping[str, Any]) -> Iterator[Chunk]:
        match method:
            case "item/agentMessage/delta":
                yield AssistantText(params["delta"], partial=True)
            case "item/commandExecution/outputDelta":
                yield ToolUpdate(params["itemId"], "running", params["delta"])
            case "item/mcpToolCall/progress":
                yield ToolUpdate(params["itemId"], "running", params["message"])
            case "turn/plan/updated":
                plan = ((entry["step"], entry["status"]) for entry in params["plan"])
                yield PlanUpdate(
                    [{"content": step, "status": STATUS_NAMES.get(status, status)} for step, status in plan]
                )
            case "item/started":
                yield from self._read_started_item(params["item"])
            case "item/completed":
                yield from self._read_completed_item(params["item"])
            case "turn/completed":
                self.done = self._read_finished_turn(params["turn"])
                yield self.done

    def _read_started_item(self, item: Mapping[str, Any]) -> Iterator[Chunk]:
        if item["type"] == "agentMessage":
            self._last_message = ""
        tool = tool_call_of_item(item)
        if tool and item["id"] not in self.items:
            self.items[item["id"]] = item
            yield tool

    def _read_completed_item(self, item: Mapping[str, Any]) -> Iterator[Chunk]:
        match item["type"]:
            case "agentMessage":
                self._last_message = item["text"]
                yield AssistantText(item["text"])
            case "reasoning":
                if thought := "\n\n".join(item.get("summary") or item.get("content") or []):
                    yield Reasoning(thought)
            case "plan":
                yield PlanUpdate([{"content": item["text"], "status": "pending"}])
            case _:
                yield from self._read_started_item(item)
                if item["id"] in self.items:
                    status = item.get("status", "completed")
                    failed = status in ("failed", "declined") or item.get("success") is False
                    output = "declined" if status == "declined" else codex_tool_output(item)
                    yield ToolUpdate(item["id"], "failed" if failed else "completed", output)

    def _read_finished_turn(self, turn: Mapping[str, Any]) -> TurnFinished:
        error, status = turn.get("error") or {}, turn["status"]
        message = readable_error(str(error.get("message") or ""))
        outcome: TurnOutcome = status if status in ("completed", "interrupted") else "failed"
        reset_time = None
        if outcome == "failed":
            message = message or f"The turn ended with status {status}"
            reset_time = codex_reset_time(self._limit_windows, message)
            is_limit, http_status = is_limit_error(error), http_status_of(error)
            outcome = failure_outcome(message, "codex", http_status, reset_time, is_limit)
            reset_time = reset_time if outcome == "limited" else None
        elif outcome == "completed" and not self._last_message.strip():
            outcome, message = "failed", NO_ANSWER
        has_answer = self._has_schema and outcome == "completed"
        return TurnFinished(
            self.thread,
            self._token_counter.usage(self._model),
            outcome=outcome,
            error=" ".join(filter(None, (message, error.get("additionalDetails")))),
            structured=parse_json_answer(self._last_message)[0] if has_answer else None,
            resets_at=reset_time,
            totals=self._token_counter.totals.get(self.thread, {}),
        )


class TokenCounter:
    """The token usage of a turn, including its sub-agents.

    Codex reports the totals of the thread and of the last model call. A turn has many calls, so its usage is
    the difference between the totals at its end and before its first call.
    """

    def __init__(self) -> None:
        self.totals: dict[str, Mapping[str, int]] = {}
        self._baseline: dict[str, dict[str, int]] = {}

    def record_totals(self, thread: str, token_usage: Mapping[str, Any]) -> None:
        total, last = token_counts(token_usage["total"]), token_counts(token_usage["last"])
        self._baseline.setdefault(thread, {name: total[name] - last[name] for name in TOKEN_KEYS})
        self.totals[thread] = total

    def usage(self, model: str | None) -> TurnUsage | None:
        if not self.totals:
            return None
        input_tokens, cache_read, cache_write, output_tokens = (
            sum(total[name] - self._baseline[thread][name] for thread, total in self.totals.items())
            for name in TOKEN_KEYS
        )
        # Codex includes tokens read from and written to the cache in the input tokens.
        return TurnUsage(
            max(0, input_tokens - cache_read - cache_write),
            output_tokens,
            cache_read,
            cache_write,
            model=model,
        )


def is_limit_error(error: Mapping[str, Any]) -> bool:
    return error.get("codexErrorInfo") in LIMIT_ERRORS


def http_status_of(error: Mapping[str, Any]) -> int | None:
    """Return the HTTP status in an error, if the API has answered with one."""
    match error.get("codexErrorInfo"):
        case {**kinds}:
            codes = [kind.get("httpStatusCode") for kind in kinds.values() if isinstance(kind, dict)]
            return next((code for code in codes if isinstance(code, int)), None)
    return None


def readable_error(text: str) -> str:
    """Return the message in an error that Codex passes on as the JSON of the API, or the text itself."""
    try:
        match json.loads(text):
            case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                return message
    except ValueError:
        pass
    return text


def codex_reset_time(windows: Mapping[str, Any], message: str, now: float | None = None) -> float | None:
    """Return when the limit ends, from the account's exhausted windows or from the message."""
    limit_windows = [windows.get(name) for name in ("primary", "secondary")]
    reset_times = [
        float(window["resetsAt"])
        for window in limit_windows
        if window and window.get("usedPercent", 0) >= 100 and window.get("resetsAt")
    ]
    return max(reset_times) if reset_times else parse_reset_time(message, now)


def token_counts(totals: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(totals.get(name) or 0) for name in TOKEN_KEYS}


def without_nulls(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if value is not None}


# -- tools ---------------------------------------------------------------------------------------------


def tool_call_of_item(item: Mapping[str, Any]) -> ToolCall | None:
    """Return the tool call of an item; None for messages and other items."""
    name = item["id"]
    match item:
        case {"type": "commandExecution", "command": command, "cwd": cwd}:
            return ToolCall("shell", {"command": command, "cwd": cwd}, name)
        case {"type": "fileChange", "changes": changes}:
            return ToolCall("apply_patch", {"changes": changes}, name)
        case {"type": "mcpToolCall", "server": server, "tool": tool}:
            return ToolCall(f"mcp__{server}__{tool}", tool_arguments(item.get("arguments")), name)
        case {"type": "dynamicToolCall", "tool": tool}:
            return ToolCall(str(tool), tool_arguments(item.get("arguments")), name)
        case {"type": "collabAgentToolCall", "tool": tool}:
            return ToolCall(
                str(tool), without_nulls({"prompt": item.get("prompt"), "model": item.get("model")}), name
            )
        case {"type": "webSearch", "query": query}:
            return ToolCall("web_search", {"query": query}, name)
        case {"type": "imageView", "path": path}:
            return ToolCall("view_image", {"path": path}, name)
        case {"type": "imageGeneration"}:
            return ToolCall("image_generation", without_nulls({"prompt": item.get("revisedPrompt")}), name)
    return None


def tool_arguments(arguments: Any) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def codex_tool_output(item: Mapping[str, Any]) -> str:
    match item:
        case {"type": "commandExecution"}:
            return item.get("aggregatedOutput") or ""
        case {"type": "mcpToolCall", "error": {"message": message}}:
            return str(message)
        case {"type": "mcpToolCall", "result": {"content": content}} | {"contentItems": list(content)}:
            return "\n".join(str(part.get("text") or part) for part in content)
    return ""
