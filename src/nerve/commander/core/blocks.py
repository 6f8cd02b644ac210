"""Blocks: the entries of a conversation, the parts of a run's output, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from nerve.api.models import GateResponse
from nerve.core.events import RUN_END_EVENTS, STEP_END_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.core.step_names import step_name
from nerve.lazy_dataclass import dataclass
from nerve.ui.diffs import is_diff, tool_input_diff
from nerve.ui.event_lines import format_event, format_user_event, is_user_event, last_nonempty_line
from nerve.ui.failure_text import failure_line
from nerve.ui.tool_lines import format_tool_call

BlockKind = Literal["input", "run", "text", "note", "error", "gate"]
PartKind = Literal["text", "tool", "thought", "diff", "log", "traceback"]
BLOCK_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)

MAX_PART_CHARS = 100_000
"""A part keeps its last characters up to this number."""
MAX_PARTS = 400
"""A block keeps its last parts up to this number."""
PART_END_EVENTS = (
    *STEP_END_EVENTS,
    *RUN_END_EVENTS,
    WorkflowEventType.NODE_RETRYING,
    WorkflowEventType.PATH_RESET,
)
"""Events after which a step produces no more output, or restarts."""
LINE_PART_KEY = "line"
"""The key of a part that is also one of the block's lines."""
RUNNING_STATUSES = ("pending", "in_progress", "running")
PLAN_MARKS = {"completed": "✓", "in_progress": "●", "pending": "○"}


@dataclass(slots=True)
class BlockPart:
    """One output of a step: a message, a tool call, a thought, a diff, plain output, or a traceback."""

    path: str
    name: str
    """The name of the step."""
    text: str = ""
    kind: PartKind = "text"
    folded: bool = False
    """Whether a screen shows only the first line until the user expands the part."""
    done: bool = False
    key: str = ""
    """Identifies the part that a later event updates."""

    def append_text(self, text: str) -> None:
        self.text = (self.text + text)[-MAX_PART_CHARS:]


@dataclass(slots=True, eq=False)
class Block:
    """One entry of the conversation; `::n` refers to a result by its number.

    input: what the user typed. run: a run that was started or is followed here; `parts` and `lines` grow
    while it runs, and `text` is its result after it ends. text: an answer in Markdown. note, error: the
    message of a command. gate: the question; the value is the answer once there is one.
    """

    position: int
    """Position in the conversation, starting at 1."""
    kind: BlockKind
    text: str = ""
    name: str = ""
    run_id: str | None = None
    value: Any = None
    """What a reference resolves to: the result of a run, or the text."""
    number: int = 0
    """The number of a result, starting at 1; 0 for other blocks."""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    done: bool = True
    end_order: int = 0
    """Order in which blocks finished."""
    parts: list[BlockPart] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The events of the run, one line each, as in pipes and files."""
    parts_before_line: list[int] = field(default_factory=list)
    """Number of parts before each line."""
    dropped_parts: int = 0
    """Number of parts that were dropped."""
    gate: GateResponse | None = None
    """The gate that a gate block shows."""

    @property
    def is_result(self) -> bool:
        """Whether `::last` and `::name` can refer to it; the output of a command is not a result."""
        return self.kind in ("run", "text") and not self.name.startswith("/")

    @property
    def growing_line(self) -> str:
        """The last line of the message that an agent is writing; empty if none is."""
        texts = (part.text for part in reversed(self.parts) if part.kind == "text" and not part.done)
        return next((line for text in texts if (line := last_nonempty_line(text))), "")

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        """Apply the next event of the run, or of a child run at `prefix`."""
        if (line := format_event(event)) is not None:
            self.lines.append(line)
            self.parts_before_line.append(self.dropped_parts + len(self.parts))
        if event.event_type in PART_END_EVENTS:
            self._close_parts(prefix + event.path)
            if (trace := event.data.get("traceback")) is not None:
                name = step_name(event.path) or event.workflow_id
                text = f"{failure_line(event.data)}\n{trace}"
                self.parts.append(BlockPart(prefix + event.path, name, text, "traceback", done=True))
        elif (handler := EVENT_HANDLERS.get(event.event_type)) is not None:
            handler(self, prefix + event.path, event)
        elif is_user_event(event):
            name = step_name(event.path) or event.workflow_id
            self.parts.append(
                BlockPart(
                    prefix + event.path, name, format_user_event(event), "log", done=True, key=LINE_PART_KEY
                )
            )
        if len(self.parts) > MAX_PARTS:
            self.dropped_parts += len(self.parts) - MAX_PARTS
            del self.parts[:-MAX_PARTS]

    def append_message(self, text: str, name: str = "") -> None:
        """Append a message that does not belong to a step."""
        self.parts.append(BlockPart("", name, text, done=True))

    # -- parts -------------------------------------------------------------------------------------------

    def _append_part(
        self, path: str, event: WorkflowEvent, text: str, kind: PartKind, **more: Any
    ) -> BlockPart:
        part = BlockPart(path, step_name(event.path), text[-MAX_PART_CHARS:], kind, **more)
        self.parts.append(part)
        return part

    def _open_part(self, path: str, kind: PartKind, key: str = "") -> BlockPart | None:
        """Return the unfinished part of a step."""
        for part in reversed(self.parts):
            if part.path == path and part.kind == kind and part.key == key and not part.done:
                return part
        return None

    def _close_parts(self, path: str) -> None:
        """Finish the open parts of a step and of everything inside it."""
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
            text = change or format_tool_call(data)
            kind: PartKind = "diff" if change else "tool"
            self._append_part(path, event, text, kind, folded=not change, done=not key, key=key)
            return
        part = self._open_part(path, "tool", key) or self._open_part(path, "diff", key)
        if part is None or not key:
            return
        output, is_running = str(data.get("text") or ""), data.get("status") in RUNNING_STATUSES
        if part.kind == "tool" and output.strip():
            if "\n" not in part.text:
                output = f"\n{output}"
            elif not is_running:  # the end of the call has the whole output
                head = part.text.partition("\n")[0]
                part.text, output = head, f"\n{output}"
            part.append_text(output if is_running else output.rstrip())
        part.done = not is_running

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
    WorkflowEventType.OUTPUT_CHUNK: Block._apply_output,
    WorkflowEventType.TOOL_CALL: Block._apply_tool_call,
    WorkflowEventType.LOG: Block._apply_log,
    WorkflowEventType.PROVIDER_LIMITED: Block._apply_log,
    WorkflowEventType.PLAN: Block._apply_plan,
}


# -- conversation --------------------------------------------------------------------------------------


@dataclass(slots=True)
class ConversationChanges:
    """Changes since the last `drain`; draining once per frame batches many events into one redraw."""

    blocks: set[int] = field(default_factory=set)
    """Positions of new or changed blocks."""
    runs: set[str] = field(default_factory=set)
    """Ids of runs whose cards or trees changed."""
    flags: set[str] = field(default_factory=set)
    """`gates`, `opened`, `focus`, `target`, `queue`, `connected`, `workflows`, and `wants` for a request of a
    command to the screen."""

    def __bool__(self) -> bool:
        return bool(self.blocks or self.runs or self.flags)

    def drain(self) -> ConversationChanges:
        """Return the changes and reset them."""
        changes = ConversationChanges(self.blocks, self.runs, self.flags)
        self.blocks, self.runs, self.flags = set(), set(), set()
        return changes


@dataclass(slots=True)
class BlockConversation:
    """The blocks of a conversation and their changes."""

    blocks: list[Block] = field(default_factory=list)
    changes: ConversationChanges = field(default_factory=ConversationChanges)
    on_change: Callable[[], None] | None = None
    """Called on the first change after a `drain`."""
    _end_count: int = 0
    _result_count: int = 0
    """Number of blocks that have a number."""
    _run_blocks: dict[str, Block] = field(default_factory=dict)
    """Blocks of followed runs by run id."""

    def block_at(self, position: int) -> Block | None:
        return self.blocks[position - 1] if 0 < position <= len(self.blocks) else None

    def block_of_run(self, run_id: str | None) -> Block | None:
        """Return the block that shows a run."""
        return self._run_blocks.get(run_id or "")

    def add_block(
        self,
        kind: BlockKind,
        text: str,
        *,
        name: str = "",
        run_id: str | None = None,
        value: Any = None,
        done: bool = True,
    ) -> Block:
        """Append a new block."""
        value = text if value is None and kind not in ("run", "gate") else value
        block = Block(len(self.blocks) + 1, kind, text, name, run_id, value, done=done)
        if block.is_result:
            self._result_count += 1
            block.number = self._result_count
        self.blocks.append(block)
        if done:
            self.end_block(block)
        self.mark_changed(block=block)
        return block

    def end_block(self, block: Block) -> None:
        """Mark a block as finished."""
        self._end_count += 1
        block.done, block.end_order = True, self._end_count

    def import_blocks(self, block_data: Iterable[Mapping[str, Any]]) -> int:
        """Append blocks of another conversation; return the number of their first result."""
        first = self._result_count + 1
        for entry in block_data:
            kind = entry.get("kind")
            block = self.add_block(
                kind if kind in BLOCK_KINDS else "note",
                str(entry.get("text") or ""),
                name=str(entry.get("name") or ""),
                run_id=str(entry["run_id"]) if entry.get("run_id") else None,
                value=entry.get("value"),
            )
            for part in entry.get("parts") or ():
                block.append_message(str(part.get("text") or ""), str(part.get("name") or ""))
        return first

    def raise_flags(self, *names: str) -> None:
        self._notify_change()
        self.changes.flags.update(names)

    def mark_changed(self, block: Block | None = None, run: str | None = None) -> None:
        self._notify_change()
        if block is not None:
            self.changes.blocks.add(block.position)
        if run is not None:
            self.changes.runs.add(run)

    def _notify_change(self) -> None:
        if self.on_change is not None and not self.changes:
            self.on_change()
