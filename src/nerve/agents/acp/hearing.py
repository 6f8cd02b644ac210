"""What an ACP agent says in a turn, from the messages of the protocol to chunks; knows no process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nerve.agents.port import Assistant, Chunk, Permission, Plan, Thought, Tool, ToolUpdate, Usage

Json = Mapping[str, Any]


@dataclass(slots=True)
class Call:
    """A tool call, as far as it is known; agents begin it before they know its input."""

    id: str
    kind: str = "other"
    title: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    changes: list[Json] = field(default_factory=list)
    places: list[Json] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    own_name: str = ""
    told: bool = False

    def learn(self, given: Json) -> None:
        self.kind = given.get("kind") or self.kind
        self.title = given.get("title") or self.title
        match given.get("rawInput"):
            case dict(value) if value:
                self.input = value
            case None | {}:
                pass
            case value:
                self.input = {"input": value}
        if (content := given.get("content")) is not None:
            self.changes = [without(part, "type") for part in content if part.get("type") == "diff"]
            self.words = [text for part in content if (text := text_of(part.get("content")))]
        if (places := given.get("locations")) is not None:
            self.places = [dict(place) for place in places]
        for extra in (given.get("_meta") or {}).values():
            if isinstance(extra, dict) and isinstance(name := extra.get("toolName"), str):
                self.own_name = name

    def whole_input(self) -> dict[str, Any]:
        """The input; of an agent that does not show it, its words for the call."""
        return self.input or {"title": self.title}

    def everything(self) -> dict[str, Any]:
        """All that is known of what the call would do: its input, what it changes, and where."""
        told = self.whole_input()
        for key, more in (("changes", self.changes), ("locations", self.places), ("content", self.words)):
            if more:
                told = told | {key: [*more, told[key]] if key in told else more}
        return told


class Hearing:
    """The turn as it was heard so far."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.cost: float | None = None
        """In US dollars and over the whole session, as the agent said it last."""
        self._pieces: list[str] = []
        self._message: str | None = None

    def update(self, given: Json) -> Iterator[Chunk]:
        """The chunks of one `session/update`."""
        kind = given.get("sessionUpdate")
        if kind == "agent_message_chunk":
            yield from self._piece(given)
            return
        if kind in ("agent_thought_chunk", "tool_call", "tool_call_update", "plan"):
            yield from self._message_over()
        match kind:
            case "agent_thought_chunk":
                if text := text_of(given.get("content")):
                    yield Thought(text)
            case "tool_call" | "tool_call_update":
                yield from self._call(given)
            case "plan":
                yield Plan([dict(entry) for entry in given.get("entries") or ()])
            case "usage_update":
                self._cost(given.get("cost") or {})

    def asked(self, call: Json, cwd: str = "") -> tuple[list[Chunk], Permission]:
        """A permission that is asked for: what to tell before, and the question."""
        known = self._known(call)
        return [*self._message_over(), *self._tell(known)], permission(known, cwd)

    def over(self) -> Iterator[Chunk]:
        """What is still to be told when the turn has ended."""
        yield from self._message_over()
        for call in self.calls.values():
            yield from self._tell(call)

    def _piece(self, given: Json) -> Iterator[Chunk]:
        text = text_of(given.get("content"))
        if not text:
            return
        message = given.get("messageId")
        if message != self._message:
            yield from self._message_over()
        self._message = message
        self._pieces.append(text)
        yield Assistant(text, partial=True)

    def _message_over(self) -> Iterator[Chunk]:
        if self._pieces:
            yield Assistant("".join(self._pieces))
            self._pieces.clear()

    def _known(self, given: Json) -> Call:
        call = self.calls.setdefault(given["toolCallId"], Call(given["toolCallId"]))
        call.learn(given)
        return call

    def _call(self, given: Json) -> Iterator[Chunk]:
        call = self._known(given)
        status = status_of(given.get("status"))
        output = output_of(given)
        if call.input or status != "running":
            yield from self._tell(call)
        if call.told and (status != "running" or output):
            yield ToolUpdate(call.id, status, output)

    def _tell(self, call: Call) -> Iterator[Chunk]:
        if not call.told:
            call.told = True
            yield Tool(call.kind, call.whole_input(), call.id)

    def _cost(self, cost: Json) -> None:
        if cost.get("currency") == "USD":
            self.cost = cost.get("amount")


def permission(call: Call, cwd: str) -> Permission:
    names = (call.own_name,) if call.own_name else ()
    return Permission(call.kind, call.everything(), call.title, cwd, names)


def without(given: Json, key: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != key}


def status_of(status: str | None) -> Literal["running", "completed", "failed"]:
    match status:
        case "completed" | "failed":
            return status
    return "running"


def output_of(given: Json) -> str:
    """What a tool gave: its content, or else its raw output."""
    texts = []
    for part in given.get("content") or ():
        match part:
            case {"type": "content", "content": content}:
                texts.append(text_of(content))
            case {"type": "diff", "path": path}:
                texts.append(f"changed {path}")
    if any(texts):
        return "\n".join(filter(None, texts))
    raw = given.get("rawOutput")
    return raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)


def text_of(content: Any) -> str:
    match content:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
    return ""


def usage_of(answer: Json, model: str | None) -> Usage:
    """What the answer to a prompt says it took."""
    match answer:
        case {"usage": dict(tokens)}:
            return counted(tokens, model)
        case {"_meta": {"quota": {"token_count": {"input_tokens": given, "output_tokens": out}, **more}}}:
            return Usage(given, out, model=model_of_gemini(more) or model)
    return Usage(model=model)


def model_of_gemini(quota: Mapping[Any, Any]) -> str | None:
    """The model of a turn, where it was one."""
    match quota:
        case {"model_usage": [{"model": str(model)}]}:
            return f"google:{model}"
    return None


def counted(tokens: Json, model: str | None) -> Usage:
    """Every token counted once.

    Some agents count what is read from a cache as input too, some do not; their total tells which.
    """
    given, out, total = tokens["inputTokens"], tokens["outputTokens"], tokens.get("totalTokens") or 0
    read, write = tokens.get("cachedReadTokens"), tokens.get("cachedWriteTokens")
    cached = (read or 0) + (write or 0)
    if cached and cached <= given and total < given + out + cached:
        given -= cached
    thought = tokens.get("thoughtTokens") or 0
    if thought and total == given + out + cached + thought:
        out += thought
    return Usage(given, out, read, write, model=model)
