"""The JSONL log: the journal of a run as lines of JSON in a file."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from nerve.core.events import WorkflowEvent, WorkflowEventType, log
from nerve.core.json_codec import encode_json
from nerve.core.safe_path import resolve_inside
from nerve.core.step_names import is_internal_path, step_name, step_path
from nerve.journal.events import (
    CallSettled,
    CallStarted,
    Event,
    NodeCancelled,
    OutputChunk,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolCalled,
    event_from_data,
)
from nerve.lazy_dataclass import dataclass

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters that JSON does not escape and some readers treat as line breaks."""

TAIL_BYTES = 65536
"""Bytes at the end of a log that are searched for its last line."""

PAYLOAD_FIELDS = frozenset({"content", "error", "tool_input"})
HIDDEN = "[encrypted]"
"""In place of inputs, outputs and errors of a run whose payloads are stored with a codec."""

LogLine = dict[str, Any]


def log_file_path(folder: str | os.PathLike[str], run_id: str) -> Path:
    """Return the path of a run's log; raise ValueError if the id is not a plain file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", run_id):
        raise ValueError(
            f"Run id {run_id!r} cannot name a log file. Use at most 128 letters, digits, '.', '_' and '-'."
        )
    return Path(folder, f"{run_id}.jsonl")


def is_log_truncated(path: Path) -> bool:
    """Whether a log exists that does not record how the run ended."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return False
    return not last.startswith((b'{"type":"workflow_complete"', b'{"type":"workflow_error"'))


class JsonlLog:
    """A sink that writes the workflow, its leaf steps, and the messages and tool calls of agents.

    The file always holds a prefix of the log, without gaps. Errors are logged once and never affect the run;
    after an error or a restart, `catch_up` with the run's events writes what is missing. With a `project`,
    nothing is written outside of it. A log that `hides_payloads` has neither inputs nor outputs nor errors.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        workflow_name: str | None = None,
        root: str = "",
        project: Path | None = None,
        hides_payloads: bool = False,
    ) -> None:
        self.path = Path(path)
        self.is_behind = False
        """Whether a line could not be written and is still missing."""
        self._formatter = LogFormatter(workflow_name, root, hides_payloads)
        self._file = LogFile(self.path, project)
        self._lock = threading.Lock()
        self._is_started = self._has_warned = False
        self._restored_until_seq = 0

    @property
    def last_seq(self) -> int:
        """The sequence number of the last event in the file, as far as known."""
        return self._file.last_seq

    def emit(self, event: WorkflowEvent) -> None:
        with self._lock:
            # A sink attached to a resumed run starts in the middle: what the file has already must not be
            # repeated.
            if not self._is_started and event.event_type != WorkflowEventType.STARTED:
                self._run_safely(self._file.append, [], self._formatter.restore_line)
                self._restored_until_seq = self._file.last_seq
            self._is_started = True
            if 0 < event.seq <= self._restored_until_seq:
                return
            line = self._run_safely(self._formatter.format_event, event)
            # Once a line is missing, later ones would leave a gap; catch_up() writes them all in order.
            if line is not None and not self.is_behind:
                self._write([line])

    def catch_up(self, events: Iterable[WorkflowEvent]) -> None:
        """Write the lines the file lacks; `events` are all events of the run so far."""
        with self._lock:
            lines = [
                line
                for event in events
                if (line := self._run_safely(self._formatter.format_event, event)) is not None
            ]
            self._is_started, self.is_behind, self._restored_until_seq = True, False, 0
            self._file.reset()
            self._write(lines)

    def _write(self, lines: list[LogLine]) -> None:
        self._run_safely(self._file.append, lines)

    def _run_safely(self, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except Exception as error:
            self.is_behind = True
            if not self._has_warned:
                log.warning("cannot write the log %s; the run continues without it: %s", self.path, error)
                self._has_warned = True
            return None


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """The name and index under which a step is logged."""

    name: str
    index: int | None


class LogFormatter:
    """Formats events as lines; tracks which steps have started."""

    def __init__(self, workflow_name: str | None, root: str, hides_payloads: bool = False) -> None:
        self._workflow_name, self._root, self._hides_payloads = workflow_name, root, hides_payloads
        self._steps: dict[str, LoggedStep] = {}
        self._restored_steps: dict[str, LoggedStep] = {}
        self._next_index = 0

    def format_event(self, event: WorkflowEvent) -> LogLine | None:
        typed = event_from_data(event.event_type, event.data)
        fields = self._event_fields(event.path, typed, event.workflow_id)
        if fields is None:
            return None
        at = event.timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        present_fields = {name: value for name, value in fields.items() if value is not None}
        if self._hides_payloads:
            present_fields |= dict.fromkeys(PAYLOAD_FIELDS & present_fields.keys(), HIDDEN)
        return {
            "type": present_fields.pop("type"),
            "workflow_id": event.run_id,
            **present_fields,
            "ts": at,
            "seq": event.seq,
        }

    def restore_line(self, line: LogLine) -> None:
        """Restore the state from a line that is already in the file."""
        step, index = str(line.get("step")), line.get("step_index")
        if line.get("type") == "step_start":
            self._restored_steps[step] = LoggedStep(step, index if isinstance(index, int) else None)
        elif line.get("type") in ("step_complete", "step_error"):
            self._restored_steps.pop(step, None)
        if isinstance(index, int):
            self._next_index = max(self._next_index, index + 1)

    def _event_fields(self, path: str, event: Event, workflow_id: str) -> LogLine | None:
        match event:
            case CallStarted():
                return self._start_fields(path, event)
            case CallSettled() | NodeCancelled():
                return self._end_fields(path, event)
            case OutputChunk(stream="assistant", text=text):
                return {"type": "assistant", **self._step_fields(path), "content": text}
            case ToolCalled(name=name, input=tool_input):
                return {
                    "type": "tool",
                    **self._step_fields(path),
                    "tool_name": name,
                    "tool_input": tool_input,
                }
            case RunStarted():
                self._steps.clear()
                self._restored_steps.clear()
                self._next_index = 0
                name = self._workflow_name or workflow_id
                return {
                    "type": "workflow_start",
                    "workflow_name": name,
                    "content": log_input_text(event.input),
                }
            case RunCompleted():
                return {"type": "workflow_complete"}
            case RunFailed(error=error):
                return {"type": "workflow_error", "error": error or "failed"}
            case RunCancelled(reason=reason):
                return {"type": "workflow_error", "error": reason or "cancelled"}
        return None

    def _start_fields(self, path: str, event: CallStarted) -> LogLine | None:
        if event.is_control or is_internal_path(path):
            return None
        logged_path = step_path(path)
        if logged_path not in self._steps:
            top = logged_path.startswith(f"{self._root}/") and "/" not in logged_path[len(self._root) + 1 :]
            self._steps[logged_path] = LoggedStep(step_name(path), self._next_index if top else None)
            self._next_index += top
        return {"type": "step_start", **self._step_fields(path)}

    def _end_fields(self, path: str, event: CallSettled | NodeCancelled) -> LogLine | None:
        step_fields = self._step_fields(path)
        if not step_fields:
            return None  # a control node
        if isinstance(event, NodeCancelled):
            return {"type": "step_error", **step_fields, "error": "cancelled"}
        if event.success:
            return None if is_internal_path(path) else {"type": "step_complete", **step_fields}
        return {"type": "step_error", **step_fields, "error": event.error or "failed"}

    def _step_fields(self, path: str) -> LogLine:
        step = self._steps.get(step_path(path)) or self._restored_steps.get(step_name(path))
        return {"step": step.name, "step_index": step.index} if step else {}


class LogFile:
    """Lines appended to a file that other threads and processes may also write."""

    def __init__(self, path: Path, project: Path | None = None) -> None:
        self._path, self._project = path, project
        self._size = 0
        self.last_seq = 0

    def reset(self) -> None:
        """Read the whole file again before the next write."""
        self._size = self.last_seq = 0

    def append(self, lines: list[LogLine], recall: Callable[[LogLine], None] | None = None) -> None:
        """Append the lines the file lacks, in one write."""
        with self._open_locked() as file:
            self._read_new_lines(file, recall)
            missing = [line for line in lines if line["seq"] > self.last_seq or not line["seq"]]
            if not missing:
                return
            added = "".join(map(format_log_line, missing)).encode()
            if os.write(file, added) < len(added):
                # A partial line would be taken for damage by the next reader.
                os.ftruncate(file, self._size)
                raise OSError("the disk is full")
            self._size += len(added)
            self.last_seq = max(self.last_seq, missing[-1]["seq"])

    @contextmanager
    def _open_locked(self) -> Iterator[int]:
        if self._project is not None:
            resolve_inside(self._project, self._path.absolute())
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(self._path, flags, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("not a regular file")
            # Locked before the size is read: two processes that both see a missing line must not both write
            # it.
            flock(file, LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _read_new_lines(self, file: int, recall: Callable[[LogLine], None] | None) -> None:
        """Read lines that others have written since, and truncate a torn line at the end."""
        size = os.fstat(file).st_size
        if size < self._size:
            raise OSError("the file was truncated")
        if size == self._size:
            return
        with open(os.dup(file), "rb") as reader:
            reader.seek(self._size)
            intact_size = self._size
            for raw in reader:
                self._size += len(raw)
                if (line := parse_log_line(raw)) is not None:
                    intact_size = self._size
                    self.last_seq = max(self.last_seq, log_line_seq(line))
                    if recall is not None:
                        recall(line)
        if intact_size < size:
            os.ftruncate(file, intact_size)
        self._size = intact_size


def parse_log_line(raw: bytes) -> LogLine | None:
    """Parse a line; None if it was not written completely."""
    try:
        line = json.loads(raw) if raw.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def log_line_seq(line: LogLine) -> int:
    seq = line.get("seq")
    return seq if isinstance(seq, int) else 0


def format_log_line(line: LogLine) -> str:
    """Return a line of the log, with all line breaks inside it escaped."""
    encoded = encode_json(line, max_depth=None)
    return f"{encoded if encoded.isascii() else encoded.translate(_LINE_BREAKS)}\n"


def log_input_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode_json(value, max_depth=None)
