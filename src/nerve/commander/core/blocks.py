"""Blocks: the things of a conversation, and what a run says in its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import unified_diff
from typing import Any, Literal, get_args

from nerve.api.models import GateTold
from nerve.commander.core.lines import is_own, own, plain
from nerve.commander.core.waits import ENDS
from nerve.core.event import ENDS as RUN_ENDS
from nerve.core.event import WorkflowEvent
from nerve.core.steps import step_name
from nerve.core.values import encode

BlockKind = Literal["input", "run", "text", "note", "error", "gate"]
PartKind = Literal["text", "tool", "thought", "diff", "log"]
BLOCK_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)

LONGEST = 100_000
"""Characters that a part keeps: the last of them."""
MOST = 400
"""Parts that a block keeps: the last of them."""
STOPS = (*ENDS, *RUN_ENDS, "node_retrying", "path_reset")
"""Events after which a step says nothing more, or begins anew."""
LINE = "line"
"""The key of a part that is one of the lines, too."""
MARKS = {"completed": "✓", "in_progress": "●", "pending": "○"}


@dataclass(slots=True)
class Part:
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

    def add(self, text: str) -> None:
        self.text = (self.text + text)[-LONGEST:]


@dataclass(slots=True, eq=False)
class Block:
    """One thing in the conversation; `::n` refers to a result by its number.

    input: what the user typed. run: a run that was started or is followed here; `parts` and `lines` grow
    as it goes on, and `text` is its result when it has ended. text: an answer, in Markdown. note, error:
    what a command says. gate: what is asked, with its answer as the value when it has one.
    """

    place: int
    """Where it is in the conversation, from 1."""
    kind: BlockKind
    text: str = ""
    name: str = ""
    run_id: str | None = None
    value: Any = None
    """What a reference gives: the result of a run, or the text."""
    number: int = 0
    """By which a result is referred to, counted from 1; 0 for anything else."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    done: bool = True
    ended: int = 0
    """Orders what is done by when it was."""
    parts: list[Part] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """What happened in the run, a line an event, as pipes and files show it."""
    before: list[int] = field(default_factory=list)
    """How many parts there were before each line."""
    left_out: int = 0
    """Parts that are not kept any more."""
    gate: GateTold | None = None
    """Of a gate: what is asked."""

    def take(self, prefix: str, event: WorkflowEvent) -> None:
        """Take in the next event of the run, or of a run that it called at `prefix`."""
        if (line := plain(event)) is not None:
            self.lines.append(line)
            self.before.append(self.left_out + len(self.parts))
        if event.event_type in STOPS:
            self._ended(prefix + event.path)
        elif (take := TAKES.get(event.event_type)) is not None:
            take(self, prefix + event.path, event)
        elif is_own(event):
            name = step_name(event) or event.workflow_id
            self.parts.append(Part(prefix + event.path, name, own(event), "log", done=True, key=LINE))
        if len(self.parts) > MOST:
            self.left_out += len(self.parts) - MOST
            del self.parts[:-MOST]

    def tell(self, text: str, name: str = "") -> None:
        """A message that is not of a step."""
        self.parts.append(Part("", name, text, done=True))

    # -- parts -------------------------------------------------------------------------------------------

    def _part(self, path: str, event: WorkflowEvent, text: str, kind: PartKind, **more: Any) -> Part:
        part = Part(path, step_name(event), text[-LONGEST:], kind, **more)
        self.parts.append(part)
        return part

    def _growing(self, path: str, kind: PartKind, key: str = "") -> Part | None:
        """The part of a step that is not done yet."""
        for part in reversed(self.parts):
            if part.path == path and part.kind == kind and part.key == key and not part.done:
                return part
        return None

    def _ended(self, path: str) -> None:
        """What a step was saying is said, and so is what anything inside it was."""
        for part in self.parts:
            if not part.done and f"{part.path}/".startswith(f"{path}/"):
                part.done = True
                if part.kind == "log" and is_diff(part.text):
                    part.kind = "diff"

    def _output(self, path: str, event: WorkflowEvent) -> None:
        text = str(event.data.get("text") or "")
        match event.data.get("stream"):
            case "partial":
                part = self._growing(path, "text") or self._part(path, event, "", "text")
                part.add(text)
            case "assistant":
                part = self._growing(path, "text") or self._part(path, event, "", "text")
                part.text, part.done = text[-LONGEST:], True
            case "thought":
                self._part(path, event, text, "thought", folded=True, done=True)
            case _:
                part = self._growing(path, "log") or self._part(path, event, "", "log")
                part.add(text)

    def _tool(self, path: str, event: WorkflowEvent) -> None:
        data, key = event.data, str(event.data.get("id") or "")
        if "name" in data:
            change = diff_in(data.get("input"))
            text = change or called(str(data["name"]), data.get("input"))
            kind: PartKind = "diff" if change else "tool"
            self._part(path, event, text, kind, folded=not change, done=not key, key=key)
            return
        part = self._growing(path, "tool", key) or self._growing(path, "diff", key)
        if part is None or not key:
            return
        if part.kind == "tool" and (said := str(data.get("text") or "").rstrip()):
            part.text = part.text.split("\n")[0]
            part.add("\n" + said)
        part.done = data.get("status") not in ("pending", "in_progress")

    def _log(self, path: str, event: WorkflowEvent) -> None:
        if message := event.data.get("message"):
            self._part(path, event, str(message), "log", done=True, key="log")

    def _plan(self, path: str, event: WorkflowEvent) -> None:
        rows = [
            f"{MARKS.get(str(entry.get('status')), '○')} {entry.get('content', '')}"
            for entry in event.data.get("entries", [])
        ]
        part = self._growing(path, "log", "plan") or self._part(path, event, "", "log", key="plan")
        part.text = "\n".join(rows)


TAKES: dict[str, Callable[[Block, str, WorkflowEvent], None]] = {
    "output_chunk": Block._output,
    "tool_call": Block._tool,
    "log": Block._log,
    "provider_limited": Block._log,
    "plan": Block._plan,
}


def called(name: str, given: Any) -> str:
    """A tool call on one line."""
    return f"{name} {encode(given) if given else ''}".rstrip().replace("\n", " ")


def is_diff(text: str) -> bool:
    begins = text.lstrip()[:20]
    return begins.startswith("diff --git ") or (begins.startswith("--- ") and "\n@@ " in text)


def diff_in(given: Any) -> str:
    """The change that the input of a tool says it makes to a file, as a unified diff; "" for others."""
    if not isinstance(given, dict):
        return ""
    before, after = given.get("old_string"), given.get("new_string")
    if not (isinstance(before, str) and isinstance(after, str)):
        return ""
    file = str(given.get("file_path") or given.get("path") or "")
    lines = unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="")
    return "\n".join(lines)
