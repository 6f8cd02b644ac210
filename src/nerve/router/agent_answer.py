"""The answer of the routing agent: a `WORKFLOW:` line or structured fields, read while they stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from nerve.agents.provider import AssistantText, Chunk, TurnFinished, TurnUsage
from nerve.core.json_schema import find_validation_error
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.router.decision import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
    join_quoted_names,
)
from nerve.router.keyword_router import route_by_keywords
from nerve.spec.checks.node_rules import is_of_type
from nerve.spec.models import InputSpec

# -- the WORKFLOW: line --------------------------------------------------------------------------


MARKER = "WORKFLOW:"
MARKER_PATTERN = re.compile(r" {0,3}WORKFLOW:\s*(\S+)")
REPEATED_MARKER_PATTERN = re.compile(r"\s*WORKFLOW:\s*(\S*)")
"""A further marker line, with any indentation."""
FENCE_PATTERN = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
BLANK_LINES_PATTERN = re.compile(r"\A(?:[^\S\n]*\n)+|\A\s+\Z")
DECORATION = "`*_\"'{}<>()[].,;:!"
"""Punctuation that agents put around a name."""


class CodeFenceTracker:
    """Tracks code blocks, in which marker lines are ignored."""

    def __init__(self) -> None:
        self.open_fence: str | None = None

    def feed(self, line: str) -> None:
        match = FENCE_PATTERN.fullmatch(line.rstrip("\r\n"))
        if match is None:
            return
        marks, rest = match.groups()
        if self.open_fence is None:
            self.open_fence = marks
        elif marks.startswith(self.open_fence) and not rest.strip():
            self.open_fence = None


class MarkerScanner:
    """Consumes an answer in pieces of any size, and returns the text that can be shown.

    The start of a line is held back until it cannot become a `WORKFLOW:` line. The first such line decides:
    after a known workflow the rest of the answer is hidden, after an unknown name it is shown.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._pieces: list[str] = []
        self._fences = CodeFenceTracker()
        self._buffer = ""
        self._offset = self._consumed = 0
        self._is_mid_line = False
        self.marker_name: str | None = None
        """The name in the first `WORKFLOW:` line, known or not."""
        self.workflow: str | None = None
        """The workflow that the line names, if it exists."""
        self.marker_span = (0, 0)
        """The offsets of the start of that line and of the end of the name."""

    @property
    def answer(self) -> str:
        return "".join(self._pieces)

    def feed(self, piece: str) -> str:
        """Consume the next piece and return the text that can be shown now."""
        self._pieces.append(piece)
        if self.marker_name is not None:
            return piece if self.workflow is None else ""
        self._buffer += piece
        return self._release_text(ended=False)

    def end(self) -> str:
        """Mark the answer as complete and return the remaining text to show."""
        return self._release_text(ended=True)

    def _release_text(self, ended: bool) -> str:
        while self.marker_name is None and self._offset < len(self._buffer) and self._pass_line(ended):
            pass
        released, self._buffer = self._buffer[: self._offset], self._buffer[self._offset :]
        self._consumed += self._offset
        self._offset = 0
        if self.marker_name is not None and self._buffer:
            released, self._buffer = released + (self._buffer if self.workflow is None else ""), ""
        return released

    def _pass_line(self, ended: bool) -> bool:
        """Advance to the next line or to the end of the buffer; return False to wait for more text."""
        stop = self._buffer.find("\n", self._offset) + 1 or len(self._buffer)
        line = self._buffer[self._offset : stop]
        is_complete = ended or line.endswith("\n")
        if not self._is_mid_line:
            if self._fences.open_fence is None and is_marker_line(line):
                return self._read_marker(ended) or (ended and self._advance(stop, is_complete))
            if not is_complete and self._may_become_marker(line):
                return False
            self._fences.feed(line)
        return self._advance(stop, is_complete)

    def _advance(self, stop: int, is_complete: bool) -> bool:
        self._offset, self._is_mid_line = stop, not is_complete
        return True

    def _read_marker(self, ended: bool) -> bool:
        """Read the name, which may be on a later line; it is complete when other text follows."""
        match = MARKER_PATTERN.match(self._buffer, self._offset)
        if match is None or (match.end() == len(self._buffer) and not ended):
            return False
        self.marker_name = match[1]
        self.workflow = next((name for name in marker_names(match[1]) if name in self._names), None)
        self.marker_span = (self._consumed + match.start(), self._consumed + match.end())
        return True

    def _may_become_marker(self, line: str) -> bool:
        stripped = line.lstrip(" ")
        if len(line) - len(stripped) > 3:
            return False
        fence = stripped[:3] in ("", "`", "``", "```", "~", "~~", "~~~")
        return fence or (self._fences.open_fence is None and MARKER.startswith(stripped))


def is_marker_line(line: str) -> bool:
    stripped = line.lstrip(" ")
    return stripped.startswith(MARKER) and len(line) - len(stripped) <= 3


def marker_names(raw_name: str) -> tuple[str, str]:
    return raw_name, raw_name.strip(DECORATION)


def parse_router_response(response: str, workflows: Iterable[Candidate], text: str = "") -> Decision:
    """Return the decision of the first `WORKFLOW:` line of an answer. Inputs are not parsed.

    The intent is the text after that line, else the text before it, else the message of the user.
    """
    names = [workflow.name for workflow in workflows]
    scanner = MarkerScanner(names)
    scanner.feed(response)
    scanner.end()
    if scanner.workflow is None:
        return ConversationDecision(
            response, text=text, warnings=unknown_workflow_warnings(scanner.marker_name, names)
        )
    before, after = response[: scanner.marker_span[0]], response[scanner.marker_span[1] :]
    intent, again = strip_marker_lines(after)
    others = {name for raw_name in again for name in marker_names(raw_name) if name in names} - {
        scanner.workflow
    }
    intent = intent or strip_marker_lines(before)[0] or text
    if others:
        candidates = (scanner.workflow, *sorted(others))
        return QuestionDecision(
            f"Which workflow do you mean: {join_quoted_names(candidates)}?", candidates, intent, text=text
        )
    return WorkflowDecision(scanner.workflow, intent, text=text)


def unknown_workflow_warnings(marker_name: str | None, names: list[str]) -> tuple[str, ...]:
    if marker_name is None:
        return ()
    close = did_you_mean_hint(marker_name, names)
    return (f"The agent named an unknown workflow: '{marker_name}'{close or '.'}",)


def strip_marker_lines(text: str) -> tuple[str, list[str]]:
    """Return the text without `WORKFLOW:` lines, and the names in those lines."""
    fences, kept_lines, raw_names = CodeFenceTracker(), list[str](), list[str]()
    for line in text.strip().split("\n"):
        match = REPEATED_MARKER_PATTERN.match(line) if fences.open_fence is None else None
        if match is not None:
            raw_names.append(match[1])
            continue
        fences.feed(line)
        kept_lines.append(line)
    # Only blank lines are stripped: less indentation before a code fence would change the code block.
    return BLANK_LINES_PATTERN.sub("", "\n".join(kept_lines)).rstrip(), raw_names


# -- structured answers --------------------------------------------------------------------------


def parse_agent_answer(
    answer: Mapping[str, Any], workflows: Sequence[Candidate], text: str
) -> Decision | None:
    """Return the decision of a structured answer, or None if it is empty. Inputs are not validated."""
    name, question, reply = (answer_text(answer, key) for key in ("workflow", "question", "reply"))
    candidate_by_name = {workflow.name: workflow for workflow in workflows}
    intent = answer_text(answer, "intent") or text
    if name in candidate_by_name:
        inputs = extract_inputs(candidate_by_name[name], answer.get("inputs"))
        if question:
            return QuestionDecision(question, (name,), intent, inputs, text=text)
        return WorkflowDecision(name, intent, inputs, text=text)
    warnings = unknown_workflow_warnings(name or None, list(candidate_by_name))
    if question:
        return QuestionDecision(question, text=text, warnings=warnings)
    if reply or name:
        return ConversationDecision(
            reply or unknown_workflow_reply(name, list(candidate_by_name)), text=text, warnings=warnings
        )
    return None


def unknown_workflow_reply(name: str, names: list[str]) -> str:
    """Return the reply to use when the agent only named an unknown workflow."""
    available = f"Available: {join_quoted_names(names)}." if names else "No workflows are available."
    return f"The routing agent chose the unknown workflow '{name}'. {available}"


def answer_text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value.strip() if isinstance(value, str) else ""


def extract_inputs(candidate: Candidate, inputs: Any) -> dict[str, Any]:
    """Return the inputs of an answer without nulls, with arrays and objects decoded from JSON text."""
    if not isinstance(inputs, Mapping):
        return {}
    return {
        str(name): parse_routed_input(candidate.inputs.get(str(name)), value)
        for name, value in inputs.items()
        if value is not None
    }


def parse_routed_input(declared: InputSpec | None, value: Any) -> Any:
    if declared is None or declared.type not in ("array", "object", "any") or not isinstance(value, str):
        return value
    return parse_json_or_text(value)


def validate_decision_inputs(decision: Decision, workflows: Sequence[Candidate]) -> Decision:
    """Return the decision, or a question if the workflow cannot start with these inputs."""
    if not isinstance(decision, WorkflowDecision):
        return decision
    candidate = next(workflow for workflow in workflows if workflow.name == decision.workflow)
    decision = replace(decision, inputs={**inputs_of_intent(candidate, decision.intent), **decision.inputs})
    wrong = {
        name: problem
        for name in decision.inputs
        if (problem := explain_wrong_input(candidate, name, decision.inputs))
    }
    missing = [
        f"'{name}' is needed ({input_kind_text(declared)}){input_description_suffix(declared)}"
        for name, declared in candidate.inputs.items()
        if declared.required and name not in decision.inputs
    ]
    problems = [*wrong.values(), *missing]
    if not problems and candidate.bind_start is not None:
        try:
            candidate.bind_start(decision.intent, decision.inputs)
        except ValueError as error:  # the code of its types may check more than a schema says
            problems = [str(error)]
    if not problems:
        return decision
    valid = {name: value for name, value in decision.inputs.items() if name not in wrong}
    question = f"To start '{candidate.name}': {'; '.join(problems)}."
    shared = {
        name: getattr(decision, name) for name in ("text", "by", "reason", "warnings", "thread", "usage")
    }
    return QuestionDecision(question, (candidate.name,), decision.intent, valid, **shared)


def inputs_of_intent(candidate: Candidate, intent: str) -> Mapping[str, Any]:
    """Return the inputs that the intent has itself: the one value, or the fields of a JSON object."""
    if candidate.takes_intent:
        return {}
    parsed, name = parse_json_or_text(intent), candidate.input_name
    if not name:
        return parsed if isinstance(parsed, Mapping) else {}
    fitting = [value for value in (intent, parsed) if not explain_wrong_input(candidate, name, {name: value})]
    return {name: fitting[0]} if fitting else {}


def explain_wrong_input(candidate: Candidate, name: str, inputs: Mapping[str, Any]) -> str:
    """Return why an input is invalid, or an empty string."""
    value, declared = inputs[name], candidate.inputs.get(name)
    if declared is None:
        close = (
            did_you_mean_hint(name, candidate.inputs).replace(". Did you mean", ", did you mean").rstrip("?")
        )
        return f"it has no input '{name}'{close}" if candidate.inputs else ""
    is_choice = declared.choices is None or value in declared.choices
    if not is_choice or not is_of_type(value, declared.type):
        return f"'{name}' must be {input_kind_text(declared)}, not {value!r:.60}"
    problem = find_validation_error(value, candidate.schemas.get(name, {}), check_formats=True)
    return f"'{name}' is invalid: {problem}" if problem else ""


def input_kind_text(declared: InputSpec) -> str:
    if declared.choices:
        return f"one of {json.dumps(declared.choices, ensure_ascii=False)}"
    article = "an" if declared.type[0] in "aio" else "a"
    return "anything" if declared.type == "any" else f"{article} {declared.type}"


def input_description_suffix(declared: InputSpec) -> str:
    return f": {declared.description.strip().rstrip('.')}" if declared.description.strip() else ""


# -- streams -------------------------------------------------------------------------------------


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
            warning = f"The agent '{agent}' could not decide: {reason}"
            decision = replace(offline, warnings=(*offline.warnings, warning))
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
            fields := self.done.structured or parse_json_or_text(self.answer), Mapping
        ):
            return parse_agent_answer(fields, self.workflows, text)
        return parse_router_response(self.answer, self.workflows, text) if self.answer.strip() else None


def parse_json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
