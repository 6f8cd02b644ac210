"""Format the events of a run as messages of a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Literal, Protocol

from nerve.core.events import (
    STEP_END_EVENTS,
    STEP_FAILURE_EVENTS,
    STEP_START_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
)
from nerve.core.json_codec import encode_json
from nerve.lazy_dataclass import dataclass
from nerve.text import clip_text

MessageMode = Literal["stream", "batch"]
"""`stream` sends each agent message and tool call at once; `batch` joins the messages of a step."""
MAX_TOOL_INPUT_CHARS = 300
"""Maximum length of a tool input in a message."""


class WorkflowDescription(Protocol):
    """The part of a workflow that the messages use."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def steps(self) -> Any: ...


def messages_of(
    events: Iterable[WorkflowEvent], workflow: WorkflowDescription, mode: MessageMode = "stream"
) -> Iterator[str]:
    """Yield the messages for some events."""
    messages = RunMessages(workflow, mode)
    for event in events:
        yield from messages.of(event)


@dataclass(slots=True)
class RunMessages:
    """Formats the events of one run, in their order."""

    workflow: WorkflowDescription
    mode: MessageMode = "stream"
    _unsent: dict[str, list[str]] = field(default_factory=dict)
    _started_steps: list[str] = field(default_factory=list)
    """The paths of the steps that were announced."""
    _failed_step: str = ""

    def of(self, event: WorkflowEvent) -> list[str]:
        """Return the messages for an event."""
        kind, data = event.event_type, event.data
        if kind in STEP_START_EVENTS:
            return self._announce_started(event)
        if kind in STEP_END_EVENTS:
            return self._finish_step(event)
        if (
            kind == WorkflowEventType.OUTPUT_CHUNK
            and data.get("stream") == "assistant"
            and not data.get("partial")
        ):
            return self._assistant_messages(event)
        if kind == WorkflowEventType.TOOL_CALL and self.mode == "stream":
            return [format_tool_call(str(data.get("name")), data.get("input"))]
        if kind == WorkflowEventType.GATE_WAITING:
            return [*self._flush(), *self._announce_started(event), format_gate_message(data)]
        if kind == WorkflowEventType.STATE_ENTERED and not event.path:
            return [*self._flush(), *self._announce_state(str(data.get("state")))]
        return self._lifecycle_messages(event)

    def _lifecycle_messages(self, event: WorkflowEvent) -> list[str]:
        name, data = workflow_title(self.workflow), event.data
        match event.event_type:
            case WorkflowEventType.STARTED:
                return [start_message(self.workflow)]
            case WorkflowEventType.COMPLETED:
                return [*self._flush(), f"**Workflow complete**: {name}"]
            case WorkflowEventType.FAILED:
                last_step = step_name_of_path(self._started_steps[-1]) if self._started_steps else ""
                step = self._failed_step or last_step
                where = f" at step: {step}" if step else f": {name}"
                return [
                    *self._flush(),
                    f"**Workflow failed**{where}\n\nError: {data.get('error') or 'failed'}",
                ]
            case WorkflowEventType.CANCELLED:
                reason = f"\n\n{data['reason']}" if data.get("reason") else ""
                return [*self._flush(), f"**Workflow cancelled**: {name}{reason}"]
            case WorkflowEventType.HELD:
                return [*self._flush(), f"**Workflow held**: {name}\n\n{data.get('message') or ''}".rstrip()]
        return []

    def _announce_started(self, event: WorkflowEvent) -> list[str]:
        step = step_path_of(event.path, self.workflow.steps)
        leaf = event.event_type != WorkflowEventType.GATE_WAITING and not event.data.get("control")
        if step is None and not self.workflow.steps and leaf:
            step = event.path
        return self._announce_step(step) if step is not None else []

    def _announce_state(self, state: str) -> list[str]:
        """Announce a state as a step, because a state may have no events of its own."""
        times = sum(step_name_of_path(step) == state for step in self._started_steps)
        return self._announce_step(f"/{state}[{times + 1}]" if times else f"/{state}")

    def _announce_step(self, step: str) -> list[str]:
        if step in self._started_steps:
            return []
        self._started_steps.append(step)
        name, steps = step_name_of_path(step), list(self.workflow.steps)
        step_number = (
            f"{steps.index(name) + 1}/{len(steps)}" if name in steps else str(len(self._started_steps))
        )
        return [f"**Step {step_number}**: {name}"]

    def _finish_step(self, event: WorkflowEvent) -> list[str]:
        step = step_path_of(event.path, self.workflow.steps) or event.path
        if event.event_type in STEP_FAILURE_EVENTS:
            self._failed_step = step_name_of_path(step)
        elif step == event.path:
            self._failed_step = ""
        return self._flush(step) if step == event.path else []

    def _assistant_messages(self, event: WorkflowEvent) -> list[str]:
        text = str(event.data.get("text") or "")
        if not text or self.mode == "stream":
            return [text] if text else []
        step = step_path_of(event.path, self.workflow.steps) or event.path
        self._unsent.setdefault(step, []).append(text)
        return []

    def _flush(self, step: str | None = None) -> list[str]:
        """Return the unsent messages of one step or of all steps."""
        steps = list(self._unsent) if step is None else [step]
        return ["\n\n".join(texts) for path in steps if (texts := self._unsent.pop(path, None))]


def workflow_title(workflow: WorkflowDescription) -> str:
    """Return the name as written in the definition."""
    return str(getattr(workflow, "title", None) or workflow.name)


def start_message(workflow: WorkflowDescription) -> str:
    """Return the first message of a run."""
    steps = f"Steps: {' → '.join(workflow.steps)}" if workflow.steps else ""
    parts = [f"**Starting workflow**: {workflow_title(workflow)}", workflow.description.strip(), steps]
    return "\n\n".join(part for part in parts if part)


def format_tool_call(name: str, tool_input: Any) -> str:
    """Return a tool call on one line."""
    text = "" if not tool_input else encode_json(tool_input)
    return f"**Tool**: {name} {clip_text(text, MAX_TOOL_INPUT_CHARS + 1)}".rstrip()


def format_gate_message(data: dict[str, Any]) -> str:
    answers = data.get("choices") or data.get("options") or []
    listed = f"\n\nAnswers: {', '.join(map(str, answers))}" if answers else ""
    name = data.get("node_id") or data.get("gate_id")
    how = f"/answer {name} {answers[0] if answers else 'TEXT'}"
    return f"**Waiting for an answer**: {data.get('prompt') or ''}{listed}\n\nAnswer with: {how}"


def step_path_of(path: str, steps: Iterable[str]) -> str | None:
    """Return the path of the step that contains a path, or None."""
    names = set(steps)
    parts = path.split("/")
    for n, part in enumerate(parts):
        if step_name_of_path(part) in names:
            return "/".join(parts[: n + 1])
    return None


def step_name_of_path(path: str) -> str:
    return re.sub(r"\[\d+\]$", "", path.rsplit("/", 1)[-1])
