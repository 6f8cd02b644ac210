"""Hearing an agent out: what may be shown of its answer, and what it decided."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.agents.provider import AssistantText, Chunk, TurnFinished, TurnUsage
from nerve.router.answer_parsing import parse_agent_answer, validate_decision_inputs, with_warning
from nerve.router.decision import Candidate, ConversationDecision, Decision
from nerve.router.keyword_router import route_by_keywords
from nerve.router.workflow_marker import MarkerScanner, parse_router_response


@dataclass(slots=True)
class ResponseReader:
    """Takes in what an agent says; with `form` it fills in fields, of which nothing is shown."""

    workflows: Sequence[Candidate]
    expects_form: bool
    messages: list[str] = field(default_factory=list)
    partial_message: str = ""
    """What there is of a message of which the whole follows."""
    shown_text: str = ""
    done: TurnFinished | None = None
    usage: TurnUsage | Mapping[str, Any] | None = None
    error: str = ""
    scanner: MarkerScanner = field(init=False)

    def __post_init__(self) -> None:
        self.scanner = MarkerScanner(workflow.name for workflow in self.workflows)

    def feed(self, chunk: Chunk) -> str:
        """Take in the next chunk; gives what may be shown now."""
        match chunk:
            case AssistantText(content, partial=True):
                piece = self._separator() + content
                self.partial_message += content
                return self._feed_scanner(piece)
            case AssistantText(content) if content:
                piece = (
                    content[len(self.partial_message) :] if content.startswith(self.partial_message) else ""
                )
                piece = self._separator() + piece
                self.messages.append(content)
                self.partial_message = ""
                return self._feed_scanner(piece)
            case TurnUsage():
                self.usage = chunk
            case TurnFinished():
                self.done = chunk
                self.usage = chunk.usage or self.usage
        return ""

    def finish(self) -> str:
        return "" if self.expects_form else self._record_shown(self.scanner.end())

    def _separator(self) -> str:
        """What stands between this message and the one before."""
        return "\n\n" if self.messages and not self.partial_message else ""

    def _feed_scanner(self, piece: str) -> str:
        return "" if self.expects_form else self._record_shown(self.scanner.feed(piece))

    def _record_shown(self, piece: str) -> str:
        self.shown_text += piece
        return piece

    @property
    def answer(self) -> str:
        return "\n\n".join([*self.messages, self.partial_message] if self.partial_message else self.messages)

    def decide(self, text: str, agent: str) -> Decision:
        """The decision; of an agent that failed nothing is taken, and it is decided offline."""
        decision = None if self.failure_reason else self._parse_decision(text)
        thread = self.done.thread if self.done else ""
        if decision is not None:
            return validate_decision_inputs(
                replace(decision, thread=thread, usage=self.usage), self.workflows
            )
        why = self.failure_reason or "it said nothing"
        if self.shown_text.strip():
            decision = ConversationDecision(
                self.shown_text, text=text, warnings=(f"the agent '{agent}' broke off: {why}",)
            )
        else:
            offline = validate_decision_inputs(route_by_keywords(text, self.workflows), self.workflows)
            decision = with_warning(offline, f"the agent '{agent}' could not decide: {why}")
        return replace(decision, thread=thread, usage=self.usage)

    @property
    def failure_reason(self) -> str:
        if self.error or self.done is None:
            return self.error or "it ended without saying that it was done"
        if self.done.outcome != "completed":
            return f"{self.done.outcome}{f': {self.done.error}' if self.done.error else ''}"
        return ""

    def _parse_decision(self, text: str) -> Decision | None:
        assert self.done is not None
        if self.expects_form and isinstance(
            filled := self.done.structured or parse_json_or_none(self.answer), Mapping
        ):
            return parse_agent_answer(filled, self.workflows, text)
        return parse_router_response(self.answer, self.workflows, text) if self.answer.strip() else None


def parse_json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
