"""Hearing an agent out: what may be shown of its answer, and what it decided."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.agents.port import Assistant, Chunk, Done, Usage
from nerve.router.decision import Conversation, Decision, Offered
from nerve.router.form import held_to_inputs, read_answer, with_warning
from nerve.router.lines import Listener, parse_router_response
from nerve.router.words import decide_by_words


@dataclass(slots=True)
class Hearing:
    """Takes in what an agent says; with `form` it fills in fields, of which nothing is shown."""

    workflows: Sequence[Offered]
    form: bool
    messages: list[str] = field(default_factory=list)
    begun: str = ""
    """What there is of a message of which the whole follows."""
    shown: str = ""
    done: Done | None = None
    usage: Usage | Mapping[str, Any] | None = None
    failed: str = ""
    listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        self.listener = Listener(each.name for each in self.workflows)

    def take(self, chunk: Chunk) -> str:
        """Take in the next chunk; gives what may be shown now."""
        match chunk:
            case Assistant(content, partial=True):
                piece = self._apart() + content
                self.begun += content
                return self._show(piece)
            case Assistant(content) if content:
                piece = content[len(self.begun) :] if content.startswith(self.begun) else ""
                piece = self._apart() + piece
                self.messages.append(content)
                self.begun = ""
                return self._show(piece)
            case Usage():
                self.usage = chunk
            case Done():
                self.done = chunk
                self.usage = chunk.usage or self.usage
        return ""

    def end(self) -> str:
        return "" if self.form else self._released(self.listener.end())

    def _apart(self) -> str:
        """What stands between this message and the one before."""
        return "\n\n" if self.messages and not self.begun else ""

    def _show(self, piece: str) -> str:
        return "" if self.form else self._released(self.listener.feed(piece))

    def _released(self, piece: str) -> str:
        self.shown += piece
        return piece

    @property
    def answer(self) -> str:
        return "\n\n".join([*self.messages, self.begun] if self.begun else self.messages)

    def decide(self, text: str, agent: str) -> Decision:
        """The decision; of an agent that failed nothing is taken, and it is decided offline."""
        decision = None if self.trouble else self._decision(text)
        thread = self.done.thread if self.done else ""
        if decision is not None:
            return held_to_inputs(replace(decision, thread=thread, usage=self.usage), self.workflows)
        why = self.trouble or "it said nothing"
        if self.shown.strip():
            decision = Conversation(
                self.shown, text=text, warnings=(f"the agent '{agent}' broke off: {why}",)
            )
        else:
            offline = held_to_inputs(decide_by_words(text, self.workflows), self.workflows)
            decision = with_warning(offline, f"the agent '{agent}' could not decide: {why}")
        return replace(decision, thread=thread, usage=self.usage)

    @property
    def trouble(self) -> str:
        if self.failed or self.done is None:
            return self.failed or "it ended without saying that it was done"
        if self.done.outcome != "completed":
            return f"{self.done.outcome}{f': {self.done.error}' if self.done.error else ''}"
        return ""

    def _decision(self, text: str) -> Decision | None:
        assert self.done is not None
        if self.form and isinstance(filled := self.done.structured or read_json(self.answer), Mapping):
            return read_answer(filled, self.workflows, text)
        return parse_router_response(self.answer, self.workflows, text) if self.answer.strip() else None


def read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
