"""Read the response of the routing agent: the text to show, and the decision."""

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
    """Consumes the chunks of a response. A structured answer shows no text."""

    workflows: Sequence[Candidate]
    expects_form: bool
    messages: list[str] = field(default_factory=list)
    partial_message: str = ""
    """The partial text of a message that is still streaming."""
    shown_text: str = ""
    done: TurnFinished | None = None
    usage: TurnUsage | Mapping[str, Any] | None = None
    error: str = ""
    scanner: MarkerScanner = field(init=False)

    def __post_init__(self) -> None:
        self.scanner = MarkerScanner(workflow.name for workflow in self.workflows)

    def feed(self, chunk: Chunk) -> str:
        """Consume the next chunk and return the text that can be shown now."""
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
        """Return the separator between the previous message and this one."""
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
        """Return the decision; if the agent failed, discard its answer and route by keywords."""
        decision = None if self.failure_reason else self._parse_decision(text)
        thread = self.done.thread if self.done else ""
        if decision is not None:
            return validate_decision_inputs(
                replace(decision, thread=thread, usage=self.usage), self.workflows
            )
        reason = self.failure_reason or "it returned no answer"
        if self.shown_text.strip():
            decision = ConversationDecision(
                self.shown_text, text=text, warnings=(f"The agent '{agent}' stopped early: {reason}",)
            )
        else:
            offline = validate_decision_inputs(route_by_keywords(text, self.workflows), self.workflows)
            decision = with_warning(offline, f"The agent '{agent}' could not decide: {reason}")
        return replace(decision, thread=thread, usage=self.usage)

    @property
    def failure_reason(self) -> str:
        if self.error or self.done is None:
            return self.error or "it ended without a final message"
        if self.done.outcome != "completed":
            return f"{self.done.outcome}{f': {self.done.error}' if self.done.error else ''}"
        return ""

    def _parse_decision(self, text: str) -> Decision | None:
        assert self.done is not None
        if self.expects_form and isinstance(
            fields := self.done.structured or parse_json_or_none(self.answer), Mapping
        ):
            return parse_agent_answer(fields, self.workflows, text)
        return parse_router_response(self.answer, self.workflows, text) if self.answer.strip() else None


def parse_json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
