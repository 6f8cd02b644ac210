"""A stub of the OpenAI Responses API as far as Codex uses it, steered by the user's messages."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from agents.stubs.server import Heard, Reply, StubServer
from agents.stubs.steer import OVERLOADED, Order, pieces

USAGE = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 20},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 132,
}
SHELLS = {
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-c", command]},
}
EXHAUSTED = {
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "type": "insufficient_quota",
    "code": "insufficient_quota",
}
INJECTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<turn_aborted>")


class OpenAIStub(StubServer):
    """Answers `POST …/responses`; every rate limit response has the `limit_headers`."""

    def __init__(self) -> None:
        self.limit_headers: Mapping[str, str] = {}
        super().__init__()

    def answer(self, heard: Heard, reply: Reply) -> None:
        if not heard.path.partition("?")[0].endswith("/responses"):
            reply.json({"object": "list", "data": [], "models": []})
            return
        order = self.order_of(*conversation(heard.body.get("input") or []))
        match order.kind:
            case "error":
                reply.json({"error": {"message": "the stub says no", "type": "stub"}}, int(order.text))
            case "limit":
                self.refuse(reply, order.text)
            case "overloaded":
                reply.json({"error": {"message": OVERLOADED, "type": "server_error"}}, int(order.text))
            case "exhausted":
                reply.json({"error": EXHAUSTED}, 429)
            case _:
                self.stream(heard.body, order, reply)

    def refuse(self, reply: Reply, seconds: str) -> None:
        """Refuse like the subscription service if a reset time is given, else like the plain API."""
        if seconds:
            error: dict[str, Any] = {
                "type": "usage_limit_reached",
                "message": "The usage limit has been reached",
                "plan_type": "plus",
                "resets_at": int(time.time()) + int(seconds),
            }
        else:
            error = {"type": "requests", "code": "rate_limit_exceeded", "message": "Rate limit reached"}
        reply.json({"error": error}, 429, self.limit_headers)

    def stream(self, body: dict[str, Any], order: Order, reply: Reply) -> None:
        response = Response(body, reply)
        response.begin()
        match order.kind:
            case "hold":
                response.open_message()
                response.delta("wait ")
                reply.hold()
                return
            case "refuse":
                response.refuse(order.text)
            case "think":
                response.think(order.text)
                response.say("thought")
            case "run":
                response.call(*self.shell(body, order.text))
            case "call":
                name, _, arguments = order.text.partition(" ")
                response.call(name, arguments)
            case _:
                response.say(order.text)
        response.end()

    def shell(self, body: dict[str, Any], command: str) -> tuple[str, str]:
        offered = [tool.get("name") for tool in body.get("tools", [])]
        name = next((name for name in SHELLS if name in offered), "shell")
        return name, json.dumps(SHELLS[name](command))


class Response:
    """One response, streamed item by item."""

    def __init__(self, body: dict[str, Any], reply: Reply) -> None:
        self.body, self.reply = body, reply
        self.id = f"resp_{uuid.uuid4().hex}"
        self.output: list[dict[str, Any]] = []
        self.item: dict[str, Any] = {}
        self.events = 0

    def event(self, kind: str, **data: Any) -> None:
        self.events += 1
        self.reply.event(kind, {"type": kind, "sequence_number": self.events, **data})

    def whole(self, status: str) -> dict[str, Any]:
        done = status == "completed"
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "model": self.body.get("model"),
            "status": status,
            "output": self.output,
            "usage": USAGE if done else None,
        }

    def begin(self) -> None:
        self.reply.start_stream()
        self.event("response.created", response=self.whole("in_progress"))

    def end(self) -> None:
        self.event("response.completed", response=self.whole("completed"))

    def open(self, kind: str, prefix: str, **fields: Any) -> None:
        self.item = {"type": kind, "id": f"{prefix}_{uuid.uuid4().hex}", **fields}
        self.event("response.output_item.added", output_index=len(self.output), item=self.item)

    def close(self, **fields: Any) -> None:
        self.item = {**self.item, **fields}
        self.event("response.output_item.done", output_index=len(self.output), item=self.item)
        self.output.append(self.item)

    def open_message(self) -> None:
        self.open("message", "msg", role="assistant", status="in_progress", content=[])

    def delta(self, text: str) -> None:
        at = {"item_id": self.item["id"], "output_index": len(self.output), "content_index": 0}
        self.event("response.output_text.delta", **at, delta=text)

    def say(self, text: str) -> None:
        self.open_message()
        for piece in pieces(text):
            self.delta(piece)
        self.close(status="completed", content=[{"type": "output_text", "text": text, "annotations": []}])

    def refuse(self, text: str) -> None:
        self.open_message()
        at = {"item_id": self.item["id"], "output_index": len(self.output), "content_index": 0}
        self.event("response.refusal.delta", **at, delta=text)
        self.event("response.refusal.done", **at, refusal=text)
        self.close(status="completed", content=[{"type": "refusal", "refusal": text}])

    def think(self, text: str) -> None:
        self.open("reasoning", "rs", summary=[])
        at = {"item_id": self.item["id"], "output_index": len(self.output), "summary_index": 0}
        self.event("response.reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""})
        for piece in pieces(text):
            self.event("response.reasoning_summary_text.delta", **at, delta=piece)
        self.close(summary=[{"type": "summary_text", "text": text}])

    def call(self, name: str, arguments: str) -> None:
        call = f"call_{uuid.uuid4().hex[:12]}"
        server, _, tool = name.removeprefix("mcp__").partition("__")
        is_offered = any(offered.get("name") == name for offered in self.body.get("tools") or ())
        named = {"name": name} if is_offered or not tool else {"namespace": f"mcp__{server}", "name": tool}
        self.open("function_call", "fc", call_id=call, arguments="", status="in_progress", **named)
        self.close(arguments=arguments, status="completed")


def conversation(given: Any) -> tuple[list[str], list[str]]:
    """Return the user's messages, and the tool results since the last one."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    said: list[str] = []
    results: list[str] = []
    for item in items:
        text = text_of(item.get("content"))
        if item.get("role") == "user" and not text.startswith(INJECTED):
            said.append(text)
            results.clear()
        elif str(item.get("type")).endswith("_call_output"):
            results.append(text_of(item.get("output")))
    return said, results


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return str(content)
