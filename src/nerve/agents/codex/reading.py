"""What Codex tells during a turn, in the words of the port."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nerve.agents.codex.limits import is_limit, resets_at
from nerve.agents.port import Assistant, Chunk, Done, Outcome, Plan, Thought, Tool, ToolUpdate, Usage

COUNTS = ("inputTokens", "cachedInputTokens", "cacheWriteInputTokens", "outputTokens")
STEPS = {"inProgress": "in_progress"}


class Reading:
    """One turn, told message by message; `done` is there when it is over."""

    def __init__(self, thread: str, turn: str, model: str | None = None, formed: bool = False) -> None:
        self.thread, self.turn = thread, turn
        self.done: Done | None = None
        self.items: dict[str, Mapping[str, Any]] = {}
        self._model, self._formed = model, formed
        self._message = ""
        self._spent = Spent()
        self._windows: Mapping[str, Any] = {}

    def take(self, method: str, params: Mapping[str, Any]) -> Iterator[Chunk]:
        if method == "thread/tokenUsage/updated":
            if params["threadId"] != self.thread or params["turnId"] == self.turn:
                self._spent.take(params["threadId"], params["tokenUsage"])
        elif method == "account/rateLimits/updated":
            self._windows = {**self._windows, **known(params["rateLimits"])}
        elif method == "item/started" and params["threadId"] != self.thread:
            self.items[params["item"]["id"]] = params["item"]  # a sub-agent's, that may be asked about
        elif params.get("threadId") == self.thread and turn_of(params) == self.turn:
            yield from self._told(method, params)

    def _told(self, method: str, params: Mapping[str, Any]) -> Iterator[Chunk]:
        match method:
            case "item/agentMessage/delta":
                yield Assistant(params["delta"], partial=True)
            case "item/commandExecution/outputDelta":
                yield ToolUpdate(params["itemId"], "running", params["delta"])
            case "item/mcpToolCall/progress":
                yield ToolUpdate(params["itemId"], "running", params["message"])
            case "turn/plan/updated":
                yield Plan([step(entry) for entry in params["plan"]])
            case "item/started":
                yield from self._started(params["item"])
            case "item/completed":
                yield from self._completed(params["item"])
            case "turn/completed":
                self.done = self._ended(params["turn"])
                yield self.done

    def _started(self, item: Mapping[str, Any]) -> Iterator[Chunk]:
        tool = tool_of(item)
        if tool and item["id"] not in self.items:
            self.items[item["id"]] = item
            yield tool

    def _completed(self, item: Mapping[str, Any]) -> Iterator[Chunk]:
        match item["type"]:
            case "agentMessage":
                self._message = item["text"]
                yield Assistant(item["text"])
            case "reasoning":
                if thought := "\n\n".join(item.get("summary") or item.get("content") or []):
                    yield Thought(thought)
            case "plan":
                yield Plan([{"content": item["text"], "status": "pending"}])
            case _:
                yield from self._started(item)
                if item["id"] in self.items:
                    yield result_of(item)

    def _ended(self, turn: Mapping[str, Any]) -> Done:
        error = turn.get("error") or {}
        outcome, message = "failed", str(error.get("message") or "")
        resets = None
        if turn["status"] == "failed" and is_limit(error):
            outcome, resets = "limited", resets_at(self._windows, message)
        elif turn["status"] in ("completed", "interrupted"):
            outcome = turn["status"]
        else:
            message = message or f"the turn ended as {turn['status']}"
        return Done(
            self.thread,
            self._spent.usage(self._model),
            outcome=as_outcome(outcome),
            error=" ".join(filter(None, (message, error.get("additionalDetails")))),
            structured=parsed(self._message) if self._formed and outcome == "completed" else None,
            resets_at=resets,
            totals=self._spent.totals.get(self.thread, {}),
        )


class Spent:
    """The tokens of a turn, its sub-agents' too.

    Codex tells what a whole thread took and what its last call of the model took. A turn has many calls,
    so it is the difference between the totals at its end and before its first call.
    """

    def __init__(self) -> None:
        self.totals: dict[str, Mapping[str, int]] = {}
        self._before: dict[str, dict[str, int]] = {}

    def take(self, thread: str, told: Mapping[str, Any]) -> None:
        total, last = counts(told["total"]), counts(told["last"])
        self._before.setdefault(thread, {name: total[name] - last[name] for name in COUNTS})
        self.totals[thread] = total

    def usage(self, model: str | None) -> Usage | None:
        if not self.totals:
            return None
        given, read, written, said = (
            sum(total[name] - self._before[thread][name] for thread, total in self.totals.items())
            for name in COUNTS
        )
        # Codex counts what came from the cache, and what went into it, as input as well.
        return Usage(max(0, given - read - written), said, read, written, model=model)


def counts(told: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(told.get(name) or 0) for name in COUNTS}


def turn_of(params: Mapping[str, Any]) -> Any:
    return params.get("turnId") or (params.get("turn") or {}).get("id")


def known(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}


def step(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": entry["step"], "status": STEPS.get(entry["status"], entry["status"])}


def as_outcome(word: str) -> Outcome:
    return next(outcome for outcome in ("completed", "interrupted", "limited", "failed") if word == outcome)


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# -- tools ---------------------------------------------------------------------------------------------


def tool_of(item: Mapping[str, Any]) -> Tool | None:
    """The call that an item is; None for messages and the like."""
    name = item["id"]
    match item:
        case {"type": "commandExecution", "command": command, "cwd": cwd}:
            return Tool("shell", {"command": command, "cwd": cwd}, name)
        case {"type": "fileChange", "changes": changes}:
            return Tool("apply_patch", {"changes": changes}, name)
        case {"type": "mcpToolCall", "server": server, "tool": tool}:
            return Tool(f"mcp__{server}__{tool}", as_input(item.get("arguments")), name)
        case {"type": "dynamicToolCall", "tool": tool}:
            return Tool(str(tool), as_input(item.get("arguments")), name)
        case {"type": "collabAgentToolCall", "tool": tool}:
            return Tool(str(tool), known({"prompt": item.get("prompt"), "model": item.get("model")}), name)
        case {"type": "webSearch", "query": query}:
            return Tool("web_search", {"query": query}, name)
        case {"type": "imageView", "path": path}:
            return Tool("view_image", {"path": path}, name)
        case {"type": "imageGeneration"}:
            return Tool("image_generation", known({"prompt": item.get("revisedPrompt")}), name)
    return None


def as_input(arguments: Any) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def result_of(item: Mapping[str, Any]) -> ToolUpdate:
    status = item.get("status", "completed")
    failed = status in ("failed", "declined") or item.get("success") is False
    output = "declined" if status == "declined" else output_of(item)
    return ToolUpdate(item["id"], "failed" if failed else "completed", output)


def output_of(item: Mapping[str, Any]) -> str:
    match item:
        case {"type": "commandExecution"}:
            return item.get("aggregatedOutput") or ""
        case {"type": "mcpToolCall", "error": {"message": message}}:
            return str(message)
        case {"type": "mcpToolCall", "result": {"content": content}} | {"contentItems": list(content)}:
            return "\n".join(str(part.get("text") or part) for part in content)
    return ""
