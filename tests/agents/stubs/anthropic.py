"""A stub of the Anthropic Messages API, streaming and non-streaming."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from agents.stubs.server import Heard, Reply, StubServer
from agents.stubs.steer import OVERLOADED, Order, pieces

REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
USED = {"cache_creation_input_tokens": 10, "cache_read_input_tokens": 20}
EXHAUSTED = "Your credit balance is too low to access the API. Please go to Plans & Billing to buy credits."
ERRORS = {400: "invalid_request_error", 401: "authentication_error", 529: "overloaded_error"}


class AnthropicStub(StubServer):
    """Every answer uses 100 input and 7 output tokens, 20 read from the cache and 10 written to it."""

    tool = "Bash"
    subscription = False
    """Whether a rate limit looks like that of a subscription, with reset time headers."""

    def answer(self, heard: Heard, reply: Reply) -> None:
        if not heard.path.startswith("/v1/messages") or heard.method != "POST":
            return reply.json({"data": [], "has_more": False})
        if "count_tokens" in heard.path:
            return reply.json({"input_tokens": 42})
        order = self.order_of(*conversation(heard.body["messages"]))
        match order.kind:
            case "error":
                status = int(order.text)
                kind = ERRORS.get(status, "api_error")
                return reply.json(error(kind, "the stub says no"), status, {"x-should-retry": "false"})
            case "overloaded":
                status, kind = int(order.text), ERRORS.get(int(order.text), "api_error")
                return reply.json(error(kind, OVERLOADED), status, {"x-should-retry": "false"})
            case "exhausted":
                return reply.json(error("invalid_request_error", EXHAUSTED), 400)
            case "limit":
                limited = error("rate_limit_error", "This request would exceed your rate limit.")
                return reply.json(limited, 429, self.limit_headers(order.text))
        blocks, stop = content(order, heard.body, self.tool)
        if not heard.body.get("stream"):
            return reply.json(message(heard.body, blocks, stop))
        reply.start_stream()
        for event in events(heard.body, blocks, stop, hold=order.kind == "hold"):
            if event is None:
                return reply.hold()
            reply.event(event["type"], event)
        return None

    def limit_headers(self, seconds: str) -> dict[str, str]:
        if not seconds:
            return {}
        if not self.subscription:
            return {"retry-after": seconds}
        reset = str(int(time.time() + int(seconds)))
        return {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": reset,
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
        }


def conversation(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the user's messages, and the tool results since the last one."""
    said: list[str] = []
    results: list[str] = []
    for message in messages:
        if message["role"] != "user":
            continue
        message_content = message["content"]
        blocks = (
            [{"type": "text", "text": message_content}]
            if isinstance(message_content, str)
            else message_content
        )
        new_results = [text_of(block["content"]) for block in blocks if block["type"] == "tool_result"]
        texts = [REMINDER.sub("", block["text"]).strip() for block in blocks if block["type"] == "text"]
        if new_results:
            results += new_results
        elif any(texts):  # several if a prompt was not answered before the next
            said, results = [*said, *filter(None, texts)], []
    return said, results


def text_of(given: Any) -> str:
    return given if isinstance(given, str) else "".join(block.get("text", "") for block in given or [])


def content(order: Order, body: dict[str, Any], tool: str) -> tuple[list[dict[str, Any]], str]:
    """Return the blocks of the answer and the stop reason."""
    match order.kind:
        case "think":
            thought = {"type": "thinking", "thinking": order.text, "signature": "c3R1Yg=="}
            return [thought, {"type": "text", "text": "thought"}], "end_turn"
        case "run":
            shell = {"command": order.text, "description": "what the stub wants"}
            return [{"type": "text", "text": "running it"}, call(tool, shell)], "tool_use"
        case "call":
            name, _, arguments = order.text.partition(" ")
            return [call(name, json.loads(arguments or "{}"))], "tool_use"
        case "refuse":
            return [{"type": "text", "text": order.text}], "refusal"
        case "json":
            for offered in body.get("tools", []):
                if offered["name"] == "StructuredOutput":
                    return [call("StructuredOutput", json.loads(order.text))], "tool_use"
    return [{"type": "text", "text": "wait " if order.kind == "hold" else order.text}], "end_turn"


def call(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": name, "input": given}


def message(body: dict[str, Any], blocks: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 7, **USED},
    }


def events(
    body: dict[str, Any], blocks: list[dict[str, Any]], stop: str, hold: bool
) -> Iterator[dict[str, Any] | None]:
    """Yield the answer as events; None is where it blocks."""
    yield {"type": "message_start", "message": message(body, [], None)}
    for index, block in enumerate(blocks):
        empty, deltas = streamed(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if hold:
            yield None
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


def streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            return {"type": "text", "text": ""}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    input_json = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": input_json}]


def error(kind: str, text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": text}}
