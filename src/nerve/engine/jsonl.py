"""The JSONL log: a run as lines of JSON in a file, one reading of its journal."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from nerve.core.event import WorkflowEvent, log
from nerve.core.paths import inside
from nerve.core.steps import is_aside, step_name, step_path
from nerve.core.values import encode

_STARTS = frozenset({"node_started", "step_started"})
_ENDS = frozenset(
    {"node_completed", "node_error", "node_timeout", "node_cancelled", "step_completed", "step_failed"}
)
_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters that JSON leaves alone and some readers take for the end of a line."""

TAIL = 65536
"""Bytes at the end of a log in which its last line is looked for."""

Line = dict[str, Any]


def log_file(folder: str | os.PathLike[str], run_id: str) -> Path:
    """The log of a run in a folder; an id that is not a plain name is refused."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", run_id):
        raise ValueError(
            f"run id {run_id!r} cannot name a log file; use at most 128 letters, digits, '.', '_' and '-'"
        )
    return Path(folder, f"{run_id}.jsonl")


def lacks_its_end(path: Path) -> bool:
    """Whether there is a log of a run that does not say how the run ended."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return False
    return not last.startswith((b'{"type":"workflow_complete"', b'{"type":"workflow_error"'))


class JsonlLog:
    """A sink that writes the workflow, its leaf steps, and what agents say and call.

    The file always holds a beginning of the log, without a gap. Trouble with it is logged once and never
    harms the run; then, and after a restart, `catch_up` with the run's events writes what is missing. With a
    `project`, nothing is written outside of it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        workflow_name: str | None = None,
        root: str = "",
        project: Path | None = None,
    ) -> None:
        self.path = Path(path)
        self.behind = False
        """Whether something could not be written and is still missing."""
        self._lines = Lines(workflow_name, root)
        self._file = File(self.path, project)
        self._lock = threading.Lock()
        self._begun = self._told = False
        self._recalled_upto = 0

    @property
    def last_seq(self) -> int:
        """The number of the last event in the file, as far as it has been looked at."""
        return self._file.last_seq

    def emit(self, event: WorkflowEvent) -> None:
        with self._lock:
            if not self._begun and event.event_type != "workflow_started":
                self._guarded(self._file.append, [], self._lines.recall)
                self._recalled_upto = self._file.last_seq
            self._begun = True
            if 0 < event.seq <= self._recalled_upto:
                return
            line = self._guarded(self._lines.of, event)
            if line is not None and not self.behind:
                self._write([line])

    def catch_up(self, events: Iterable[WorkflowEvent]) -> None:
        """Write what the file lacks of these events, which are all of the run so far."""
        with self._lock:
            lines = [line for event in events if (line := self._guarded(self._lines.of, event)) is not None]
            self._begun, self.behind, self._recalled_upto = True, False, 0
            self._file.forget()
            self._write(lines)

    def _write(self, lines: list[Line]) -> None:
        self._guarded(self._file.append, lines)

    def _guarded(self, do: Callable[..., Any], *given: Any) -> Any:
        try:
            return do(*given)
        except Exception as error:
            self.behind = True
            if not self._told:
                log.warning("the log %s cannot be written, the run goes on without it: %s", self.path, error)
                self._told = True
            return None


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    index: int | None


class Lines:
    """Events made into lines; knows which steps have started."""

    def __init__(self, workflow_name: str | None, root: str) -> None:
        self._name, self._root = workflow_name, root
        self._steps: dict[str, Step] = {}
        self._recalled: dict[str, Step] = {}
        self._next = 0

    def of(self, event: WorkflowEvent) -> Line | None:
        fields = self._fields(event)
        if fields is None:
            return None
        at = event.timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        kept = {name: value for name, value in fields.items() if value is not None}
        return {"type": kept.pop("type"), "workflow_id": event.run_id, **kept, "ts": at, "seq": event.seq}

    def recall(self, line: Line) -> None:
        """Take in a line that is in the file already."""
        step, index = str(line.get("step")), line.get("step_index")
        if line.get("type") == "step_start":
            self._recalled[step] = Step(step, index if isinstance(index, int) else None)
        elif line.get("type") in ("step_complete", "step_error"):
            self._recalled.pop(step, None)
        if isinstance(index, int):
            self._next = max(self._next, index + 1)

    def _fields(self, event: WorkflowEvent) -> Line | None:
        kind, data = event.event_type, event.data
        if kind in _STARTS:
            return self._started(event)
        if kind in _ENDS:
            return self._ended(event)
        if kind == "output_chunk" and data.get("stream") == "assistant":
            return {"type": "assistant", **self._where(event), "content": data.get("text")}
        if kind == "tool_call":
            called = {"tool_name": data.get("name"), "tool_input": data.get("input")}
            return {"type": "tool", **self._where(event), **called}
        return self._of_workflow(event)

    def _of_workflow(self, event: WorkflowEvent) -> Line | None:
        data = event.data
        match event.event_type:
            case "workflow_started":
                self._steps.clear()
                self._recalled.clear()
                self._next = 0
                name = self._name or event.workflow_id
                return {"type": "workflow_start", "workflow_name": name, "content": text(data.get("input"))}
            case "workflow_completed":
                return {"type": "workflow_complete"}
            case "workflow_failed":
                return {"type": "workflow_error", "error": data.get("error") or "failed"}
            case "workflow_cancelled":
                return {"type": "workflow_error", "error": data.get("reason") or "cancelled"}
        return None

    def _started(self, event: WorkflowEvent) -> Line | None:
        if event.data.get("control") or is_aside(event.path):
            return None
        path, name = step_path(event.path), step_name(event)
        if path not in self._steps:
            top = path.startswith(f"{self._root}/") and "/" not in path[len(self._root) + 1 :]
            self._steps[path] = Step(name, self._next if top else None)
            self._next += top
        return {"type": "step_start", **self._where(event)}

    def _ended(self, event: WorkflowEvent) -> Line | None:
        data, where = event.data, self._where(event)
        if not where:
            return None  # a control node
        if data.get("success") and event.event_type in ("node_completed", "step_completed"):
            return None if is_aside(event.path) else {"type": "step_complete", **where}
        otherwise = "cancelled" if event.event_type == "node_cancelled" else "failed"
        return {"type": "step_error", **where, "error": data.get("error") or otherwise}

    def _where(self, event: WorkflowEvent) -> Line:
        step = self._steps.get(step_path(event.path)) or self._recalled.get(step_name(event))
        return {"step": step.name, "step_index": step.index} if step else {}


class File:
    """Lines appended to a file that other threads and processes may write too."""

    def __init__(self, path: Path, project: Path | None = None) -> None:
        self._path, self._project = path, project
        self._size = 0
        self.last_seq = 0

    def forget(self) -> None:
        """Look at the whole file again before the next line."""
        self._size = self.last_seq = 0

    def append(self, lines: list[Line], recall: Callable[[Line], None] | None = None) -> None:
        """Add the lines that the file lacks, in one write."""
        with self._opened() as file:
            self._look(file, recall)
            lacking = [line for line in lines if line["seq"] > self.last_seq or not line["seq"]]
            if not lacking:
                return
            added = "".join(map(as_line, lacking)).encode()
            if os.write(file, added) < len(added):
                os.ftruncate(file, self._size)
                raise OSError("the disk is full")
            self._size += len(added)
            self.last_seq = max(self.last_seq, lacking[-1]["seq"])

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._project is not None:
            inside(self._project, self._path.absolute())
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(self._path, flags, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("it is not a plain file")
            flock(file, LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _look(self, file: int, recall: Callable[[Line], None] | None) -> None:
        """Take in what others have written since, and cut what is torn at the end."""
        size = os.fstat(file).st_size
        if size < self._size:
            raise OSError("somebody has cut it")
        if size == self._size:
            return
        with open(os.dup(file), "rb") as reader:
            reader.seek(self._size)
            whole = self._size
            for raw in reader:
                self._size += len(raw)
                if (line := read_line(raw)) is not None:
                    whole = self._size
                    self.last_seq = max(self.last_seq, seq_of(line))
                    if recall is not None:
                        recall(line)
        if whole < size:
            os.ftruncate(file, whole)
        self._size = whole


def read_line(raw: bytes) -> Line | None:
    """A line of the file, or None if it is not one that was written as a whole."""
    try:
        line = json.loads(raw) if raw.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def seq_of(line: Line) -> int:
    seq = line.get("seq")
    return seq if isinstance(seq, int) else 0


def as_line(line: Line) -> str:
    written = encode(line, deep=None)
    return f"{written if written.isascii() else written.translate(_BREAKS)}\n"


def text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value, deep=None)
