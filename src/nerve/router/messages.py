"""A run as messages of a conversation, read from its events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from nerve.core.event import WorkflowEvent
from nerve.core.values import encode

Mode = Literal["stream", "batch"]
"""Each message and tool call of an agent at once, or the messages of a step together, without tool calls."""
TOOL_LIMIT = 300
"""Characters of a tool's input that are shown."""
ENDS = frozenset(
    {"node_completed", "node_error", "node_timeout", "node_cancelled", "step_completed", "step_failed"}
)
FAILURES = frozenset({"node_error", "node_timeout", "step_failed"})


class Told(Protocol):
    """What the messages need to know of a workflow."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def steps(self) -> Any: ...


def messages_of(events: Iterable[WorkflowEvent], workflow: Told, mode: Mode = "stream") -> Iterator[str]:
    """The messages that tell of these events."""
    messages = Messages(workflow, mode)
    for event in events:
        yield from messages.of(event)


@dataclass(slots=True)
class Messages:
    """Makes messages of the events of one run, in their order."""

    workflow: Told
    mode: Mode = "stream"
    _said: dict[str, list[str]] = field(default_factory=dict)
    _begun: list[str] = field(default_factory=list)
    """The paths of the steps that were told of."""
    _failing: str = ""

    def of(self, event: WorkflowEvent) -> list[str]:
        """The messages to send because of this event."""
        kind, data = event.event_type, event.data
        if kind in ("node_started", "step_started"):
            return self._started(event)
        if kind in ENDS:
            return self._ended(event)
        if kind == "output_chunk" and data.get("stream") == "assistant" and not data.get("partial"):
            return self._assistant(event)
        if kind == "tool_call" and self.mode == "stream":
            return [tool_call(str(data.get("name")), data.get("input"))]
        if kind == "gate_waiting":
            return [*self._flush(), *self._started(event), gate(data)]
        if kind == "state_entered" and not event.path:
            return [*self._flush(), *self._entered(str(data.get("state")))]
        return self._lifecycle(event)

    def _lifecycle(self, event: WorkflowEvent) -> list[str]:
        name, data = title(self.workflow), event.data
        match event.event_type:
            case "workflow_started":
                return [starting(self.workflow)]
            case "workflow_completed":
                return [*self._flush(), f"**Workflow complete**: {name}"]
            case "workflow_failed":
                where = f" at step: {step}" if (step := self._failing or self._last()) else f": {name}"
                return [
                    *self._flush(),
                    f"**Workflow failed**{where}\n\nError: {data.get('error') or 'failed'}",
                ]
            case "workflow_cancelled":
                reason = f"\n\n{data['reason']}" if data.get("reason") else ""
                return [*self._flush(), f"**Workflow cancelled**: {name}{reason}"]
            case "workflow_held":
                return [*self._flush(), f"**Workflow held**: {name}\n\n{data.get('message') or ''}".rstrip()]
        return []

    def _started(self, event: WorkflowEvent) -> list[str]:
        step = step_of(event.path, self.workflow.steps)
        leaf = event.event_type != "gate_waiting" and not event.data.get("control")
        if step is None and not self.workflow.steps and leaf:
            step = event.path
        return self._begin(step) if step is not None else []

    def _entered(self, state: str) -> list[str]:
        """A state is a step that may have no events of its own."""
        times = sum(step_name(step) == state for step in self._begun)
        return self._begin(f"/{state}[{times + 1}]" if times else f"/{state}")

    def _begin(self, step: str) -> list[str]:
        if step in self._begun:
            return []
        self._begun.append(step)
        name, steps = step_name(step), list(self.workflow.steps)
        place = f"{steps.index(name) + 1}/{len(steps)}" if name in steps else str(len(self._begun))
        return [f"**Step {place}**: {name}"]

    def _ended(self, event: WorkflowEvent) -> list[str]:
        step = step_of(event.path, self.workflow.steps) or event.path
        if event.event_type in FAILURES:
            self._failing = step_name(step)
        elif step == event.path:
            self._failing = ""
        return self._flush(step) if step == event.path else []

    def _assistant(self, event: WorkflowEvent) -> list[str]:
        text = str(event.data.get("text") or "")
        if not text or self.mode == "stream":
            return [text] if text else []
        step = step_of(event.path, self.workflow.steps) or event.path
        self._said.setdefault(step, []).append(text)
        return []

    def _flush(self, step: str | None = None) -> list[str]:
        """What was said and not yet sent, of one step or of all."""
        steps = list(self._said) if step is None else [step]
        return ["\n\n".join(said) for each in steps if (said := self._said.pop(each, None))]

    def _last(self) -> str:
        return step_name(self._begun[-1]) if self._begun else ""


def title(workflow: Told) -> str:
    """The name as it was written."""
    return str(getattr(workflow, "title", None) or workflow.name)


def starting(workflow: Told) -> str:
    """The first message of a run."""
    steps = f"Steps: {' → '.join(workflow.steps)}" if workflow.steps else ""
    parts = [f"**Starting workflow**: {title(workflow)}", workflow.description.strip(), steps]
    return "\n\n".join(part for part in parts if part)


def tool_call(name: str, given: Any) -> str:
    """A tool call on one line."""
    text = "" if not given else encode(given)
    shown = text if len(text) <= TOOL_LIMIT else f"{text[:TOOL_LIMIT]}…"
    return f"**Tool**: {name} {shown}".rstrip()


def gate(data: dict[str, Any]) -> str:
    answers = data.get("choices") or data.get("options") or []
    listed = f"\n\nAnswers: {', '.join(map(str, answers))}" if answers else ""
    name = data.get("node_id") or data.get("gate_id")
    how = f"/answer {name} {answers[0] if answers else 'TEXT'}"
    return f"**Waiting for an answer**: {data.get('prompt') or ''}{listed}\n\nAnswer with: {how}"


def step_of(path: str, steps: Iterable[str]) -> str | None:
    """The path of the step that something at a path belongs to."""
    names = set(steps)
    parts = path.split("/")
    for n, part in enumerate(parts):
        if step_name(part) in names:
            return "/".join(parts[: n + 1])
    return None


def step_name(path: str) -> str:
    return re.sub(r"\[\d+\]$", "", path.rsplit("/", 1)[-1])
