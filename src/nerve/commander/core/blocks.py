"""Blocks: the things of a conversation, and what a run says in its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import unified_diff
from typing import Any, Literal, get_args

from nerve.api.models import GateResponse
from nerve.core.events import RUN_END_EVENTS as RUN_ENDS
from nerve.core.events import WorkflowEvent
from nerve.core.json_codec import encode_json
from nerve.core.step_names import event_step_name
from nerve.ui.event_lines import format_event, format_user_event, is_user_event
from nerve.ui.open_waits import STEP_END_EVENTS

BlockKind = Literal["input", "run", "text", "note", "error", "gate"]
PartKind = Literal["text", "tool", "thought", "diff", "log"]
BLOCK_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)

MAX_PART_CHARS = 100_000
"""Characters that a part keeps: the last of them."""
MAX_PARTS = 400
"""Parts that a block keeps: the last of them."""
PART_END_EVENTS = (*STEP_END_EVENTS, *RUN_ENDS, "node_retrying", "path_reset")
"""Events after which a step says nothing more, or begins anew."""
LINE_PART_KEY = "line"
"""The key of a part that is one of the lines, too."""
PLAN_MARKS = {"completed": "✓", "in_progress": "●", "pending": "○"}


@dataclass(slots=True)
class BlockPart:
    """What one step of a run says in one go: a message, a tool call, a thought, a diff, or plain output."""

    path: str
    name: str
    """The step."""
    text: str = ""
    kind: PartKind = "text"
    folded: bool = False
    """Whether a screen shows only its first line until somebody opens it."""
    done: bool = False
    key: str = ""
    """Tells which part a later event is about."""

    def append_text(self, text: str) -> None:
        self.text = (self.text + text)[-MAX_PART_CHARS:]


@dataclass(slots=True, eq=False)
class Block:
    """One thing in the conversation; `::n` refers to a result by its number.

    input: what the user typed. run: a run that was started or is followed here; `parts` and `lines` grow
    as it goes on, and `text` is its result when it has ended. text: an answer, in Markdown. note, error:
    what a command says. gate: what is asked, with its answer as the value when it has one.
    """

    position: int
    """Where it is in the conversation, from 1."""
    kind: BlockKind
    text: str = ""
    name: str = ""
    run_id: str | None = None
    value: Any = None
    """What a reference gives: the result of a run, or the text."""
    number: int = 0
    """By which a result is referred to, counted from 1; 0 for anything else."""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    done: bool = True
    end_order: int = 0
    """Orders what is done by when it was."""
    parts: list[BlockPart] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """What happened in the run, a line an event, as pipes and files show it."""
    parts_before_line: list[int] = field(default_factory=list)
    """How many parts there were before each line."""
    dropped_parts: int = 0
    """Parts that are not kept any more."""
    gate: GateResponse | None = None
    """Of a gate: what is asked."""

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        """Take in the next event of the run, or of a run that it called at `prefix`."""
        if (line := format_event(event)) is not None:
            self.lines.append(line)
            self.parts_before_line.append(self.dropped_parts + len(self.parts))
        if event.event_type in PART_END_EVENTS:
            self._close_parts(prefix + event.path)
        elif (handler := EVENT_HANDLERS.get(event.event_type)) is not None:
            handler(self, prefix + event.path, event)
        elif is_user_event(event):
            name = event_step_name(event) or event.workflow_id
            self.parts.append(
                BlockPart(
                    prefix + event.path, name, format_user_event(event), "log", done=True, key=LINE_PART_KEY
                )
            )
        if len(self.parts) > MAX_PARTS:
            self.dropped_parts += len(self.parts) - MAX_PARTS
            del self.parts[:-MAX_PARTS]

    def append_message(self, text: str, name: str = "") -> None:
        """A message that is not of a step."""
        self.parts.append(BlockPart("", name, text, done=True))

    # -- parts -------------------------------------------------------------------------------------------

    def _append_part(
        self, path: str, event: WorkflowEvent, text: str, kind: PartKind, **more: Any
    ) -> BlockPart:
        part = BlockPart(path, event_step_name(event), text[-MAX_PART_CHARS:], kind, **more)
        self.parts.append(part)
        return part

    def _open_part(self, path: str, kind: PartKind, key: str = "") -> BlockPart | None:
        """The part of a step that is not done yet."""
        for part in reversed(self.parts):
            if part.path == path and part.kind == kind and part.key == key and not part.done:
                return part
        return None

    def _close_parts(self, path: str) -> None:
        """What a step was saying is said, and so is what anything inside it was."""
        for part in self.parts:
            if not part.done and f"{part.path}/".startswith(f"{path}/"):
                part.done = True
                if part.kind == "log" and is_diff(part.text):
                    part.kind = "diff"

    def _apply_output(self, path: str, event: WorkflowEvent) -> None:
        text = str(event.data.get("text") or "")
        match event.data.get("stream"):
            case "partial":
                part = self._open_part(path, "text") or self._append_part(path, event, "", "text")
                part.append_text(text)
            case "assistant":
                part = self._open_part(path, "text") or self._append_part(path, event, "", "text")
                part.text, part.done = text[-MAX_PART_CHARS:], True
            case "thought":
                self._append_part(path, event, text, "thought", folded=True, done=True)
            case _:
                part = self._open_part(path, "log") or self._append_part(path, event, "", "log")
                part.append_text(text)

    def _apply_tool_call(self, path: str, event: WorkflowEvent) -> None:
        data, key = event.data, str(event.data.get("id") or "")
        if "name" in data:
            change = tool_input_diff(data.get("input"))
            text = change or format_tool_call_line(str(data["name"]), data.get("input"))
            kind: PartKind = "diff" if change else "tool"
            self._append_part(path, event, text, kind, folded=not change, done=not key, key=key)
            return
        part = self._open_part(path, "tool", key) or self._open_part(path, "diff", key)
        if part is None or not key:
            return
        if part.kind == "tool" and (output := str(data.get("text") or "").rstrip()):
            part.text = part.text.split("\n")[0]
            part.append_text("\n" + output)
        part.done = data.get("status") not in ("pending", "in_progress")

    def _apply_log(self, path: str, event: WorkflowEvent) -> None:
        if message := event.data.get("message"):
            self._append_part(path, event, str(message), "log", done=True, key="log")

    def _apply_plan(self, path: str, event: WorkflowEvent) -> None:
        rows = [
            f"{PLAN_MARKS.get(str(entry.get('status')), '○')} {entry.get('content', '')}"
            for entry in event.data.get("entries", [])
        ]
        part = self._open_part(path, "log", "plan") or self._append_part(path, event, "", "log", key="plan")
        part.text = "\n".join(rows)


EVENT_HANDLERS: dict[str, Callable[[Block, str, WorkflowEvent], None]] = {
    "output_chunk": Block._apply_output,
    "tool_call": Block._apply_tool_call,
    "log": Block._apply_log,
    "provider_limited": Block._apply_log,
    "plan": Block._apply_plan,
}


def format_tool_call_line(name: str, tool_input: Any) -> str:
    """A tool call on one line."""
    return f"{name} {encode_json(tool_input) if tool_input else ''}".rstrip().replace("\n", " ")


def is_diff(text: str) -> bool:
    start = text.lstrip()[:20]
    return start.startswith("diff --git ") or (start.startswith("--- ") and "\n@@ " in text)


def tool_input_diff(tool_input: Any) -> str:
    """The change that the input of a tool says it makes to a file, as a unified diff; "" for others."""
    if not isinstance(tool_input, dict):
        return ""
    before, after = tool_input.get("old_string"), tool_input.get("new_string")
    if not (isinstance(before, str) and isinstance(after, str)):
        return ""
    file = str(tool_input.get("file_path") or tool_input.get("path") or "")
    lines = unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="")
    return "\n".join(lines)
