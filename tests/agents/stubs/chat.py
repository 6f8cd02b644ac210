"""A stub of the Chat Completions API, which OpenAI and many others offer; streaming only."""

from __future__ import annotations

import json
import uuid
from typing import Any

from agents.stubs.openai import EXHAUSTED
from agents.stubs.server import Heard, Reply, StubServer
from agents.stubs.steer import OVERLOADED, Order, pieces

USED = {
    "prompt_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 20},
    "completion_tokens": 12,
    "total_tokens": 132,
}


class ChatStub(StubServer):
    """Every answer uses 120 input tokens, 20 of them cached, and 12 output tokens."""

    def answer(self, heard: Heard, reply: Reply) -> None:
        if not heard.path.endswith("/chat/completions"):
            return reply.json({"object": "list", "data": []})
        order = self.order_of(*conversation(heard.body["messages"]))
        match order.kind:
            case "error":
                return reply.json({"error": {"message": "the stub says no"}}, int(order.text))
            case "overloaded":
                return reply.json({"error": {"message": OVERLOADED}}, int(order.text))
            case "exhausted":
                return reply.json({"error": EXHAUSTED}, 429)
            case "limit":
                headers = {"retry-after": order.text} if order.text else {}
                return reply.json({"error": {"message": "Rate limit reached"}}, 429, headers)
        return Streamed(heard.body, reply).answer(order)


class Streamed:
    """One answer, chunk by chunk."""

    def __init__(self, body: dict[str, Any], reply: Reply) -> None:
        self.reply = reply
        self.frame = {"id": f"chat-{uuid.uuid4().hex}", "created": 1, "model": body.get("model")}
        reply.start_stream()

    def answer(self, order: Order) -> None:
        match order.kind:
            case "hold":
                self.send({"content": "wait "})
                return self.reply.hold()
            case "think":
                for piece in pieces(order.text):
                    self.send({"reasoning_content": piece})
                self.say("thought")
            case "run":
                self.say("running it", None)
                self.call("shell", json.dumps({"command": order.text}))
            case "call":
                name, _, arguments = order.text.partition(" ")
                self.call(name, arguments or "{}")
            case _:
                self.say(order.text)
        self.reply.event(None, self.chunk([], usage=USED))
        self.reply.event(None, "[DONE]")
        return None

    def say(self, text: str, end: str | None = "stop") -> None:
        for piece in pieces(text):
            self.send({"content": piece})
        if end:
            self.send({}, end)

    def call(self, name: str, given: str) -> None:
        function = {"name": name, "arguments": given}
        called = {"index": 0, "id": f"call_{uuid.uuid4().hex[:12]}", "type": "function", "function": function}
        self.send({"tool_calls": [called]})
        self.send({}, "tool_calls")

    def send(self, delta: dict[str, Any], end: str | None = None) -> None:
        choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": end}
        self.reply.event(None, self.chunk([choice]))

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**self.frame, "object": "chat.completion.chunk", "choices": choices, **more}


def conversation(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the user's messages, and the tool results since the last one."""
    said: list[str] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "user":
            said, results = [*said, text_of(message["content"])], []
        elif message["role"] == "tool":
            results.append(text_of(message["content"]))
    return said, results


def text_of(given: Any) -> str:
    return given if isinstance(given, str) else "".join(part.get("text", "") for part in given or [])
