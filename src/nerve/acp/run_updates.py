"""The events of a run as updates of an ACP session: messages, a plan of the steps, tool calls and diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import acp
from acp import schema
from nerve.api.models import StepChanges
from nerve.core.events import STEP_END_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.core.step_names import step_label
from nerve.router.run_messages import step_name_of_path, step_path_of
from nerve.ui.event_lines import is_internal_call, result_attributes
from nerve.ui.failure_text import failure_line
from nerve.ui.formatting import format_value

MAX_OUTPUT_CHARS = 10_000
HIDDEN_STEP = "/~"
"""In the paths of the calls that the engine makes for a workspace."""
TOOL_STATUS = {"running": "in_progress", "completed": "completed", "failed": "failed"}
HUNK = re.compile(r"^@@ .*?@@.*$", re.MULTILINE)
FILE_HEADER = re.compile(r"^diff --git ", re.MULTILINE)

Update = Any
"""One of the models of a session update."""


class RunUpdates:
    """Converts the events of one run, in their order."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._steps: list[str] = []
        """The names of the steps that the workflow declares."""
        self._plan: dict[str, str] = {}
        """The status of each step of the plan, by its name."""
        self._started_calls: set[str] = set()

    def of(self, event: WorkflowEvent) -> Iterator[Update]:
        """Yield the updates for an event; gates and the end of the run are not among them."""
        data = event.data
        if event.event_type == WorkflowEventType.STARTED:
            self._steps = [str(step) for step in data.get("steps") or ()]
            self._plan = dict.fromkeys(self._steps, "pending")
            if self._plan:
                yield self._plan_update()
        elif event.event_type == WorkflowEventType.OUTPUT_CHUNK:
            if data.get("stream") == "assistant" and data.get("text"):
                yield acp.update_agent_message_text(f"{data['text'].rstrip()}\n\n")
        elif event.event_type == WorkflowEventType.TOOL_CALL:
            yield self._tool_update(event)
        elif not is_internal_call(data) and HIDDEN_STEP not in event.path:
            yield from self._step_updates(event)

    def _step_updates(self, event: WorkflowEvent) -> Iterator[Update]:
        is_start = event.event_type in (*STEP_START_EVENTS, WorkflowEventType.GATE_WAITING)
        is_end = event.event_type in (*STEP_END_EVENTS, WorkflowEventType.GATE_ANSWERED)
        path = step_path_of(event.path, self._steps)
        if path is None and not self._steps and event.path.count("/") == 1:
            path = event.path
        if path is not None and (is_start or (is_end and event.path.removesuffix("/answer") == path)):
            name, status = step_name_of_path(path), "in_progress" if is_start else "completed"
            if self._plan.get(name) != status:
                self._plan[name] = status
                yield self._plan_update()
        if event.event_type in STEP_START_EVENTS and not event.data.get("control"):
            yield acp.start_tool_call(
                self._call_id(event.path), step_label(event.path), kind="execute", status="in_progress"
            )
            self._started_calls.add(event.path)
        elif event.event_type in STEP_END_EVENTS and event.path in self._started_calls:
            self._started_calls.discard(event.path)
            yield self._finished_step(event)

    def _finished_step(self, event: WorkflowEvent) -> Update:
        result = event.data.get("result") or {}
        is_agent = "provider" in result_attributes(event.data)
        output = "" if is_agent or result.get("output") is None else format_value(result["output"])
        is_failed = not event.data.get("success")
        text = failure_line({"error": result.get("error"), **event.data}) if is_failed else output
        content = [acp.tool_content(acp.text_block(text[:MAX_OUTPUT_CHARS]))] if text.strip() else None
        status: Literal["failed", "completed"] = "failed" if is_failed else "completed"
        return acp.update_tool_call(self._call_id(event.path), status=status, content=content)

    def changes(self, step: StepChanges) -> Update | None:
        """Return the update that shows what a step has changed; None without a difference."""
        content = list(diff_contents(step.diff or ""))
        if not content:
            return None
        return acp.update_tool_call(self._call_id(step.path), kind="edit", content=content)

    def _tool_update(self, event: WorkflowEvent) -> Update:
        data = event.data
        call_id = f"{self._run_id}{event.path}#{data.get('id')}"
        status: Any = TOOL_STATUS.get(str(data.get("status")), "in_progress")
        text = str(data.get("text") or "")[:MAX_OUTPUT_CHARS]
        content = [acp.tool_content(acp.text_block(text))] if text else None
        if data.get("name") is None:
            return acp.update_tool_call(call_id, status=status, content=content)
        return acp.start_tool_call(call_id, str(data["name"]), status=status, raw_input=data.get("input"))

    def _plan_update(self) -> Update:
        entries = [acp.plan_entry(name, status=status) for name, status in self._plan.items()]  # type: ignore[arg-type]
        return acp.update_plan(entries)

    def _call_id(self, path: str) -> str:
        return f"{self._run_id}{path}"


def diff_contents(patch: str) -> Iterator[schema.FileEditToolCallContent]:
    """Yield the old and the new text of each changed part of a patch."""
    for file in FILE_HEADER.split(patch)[1:]:
        head, *hunks = HUNK.split(file)
        names = [line[4:].strip() for line in head.splitlines() if line.startswith(("--- ", "+++ "))]
        name = next((name[2:] for name in reversed(names) if name != "/dev/null"), "")
        for hunk in hunks if name else ():
            lines = [line for line in hunk.splitlines() if line[:1] in (" ", "-", "+")]
            old = [line[1:] for line in lines if line[0] != "+"]
            new = [line[1:] for line in lines if line[0] != "-"]
            is_new = names[0] == "/dev/null"
            yield acp.tool_diff_content(name, "\n".join(new), None if is_new else "\n".join(old))
