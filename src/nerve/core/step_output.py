"""What a function prints and logs while it runs as a step: recorded as events of the step.

Log records are captured in every process. Prints are captured where the process belongs to Nerve: the
commands and the server install streams for that; a program that uses Nerve keeps its own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

from nerve.core.events import WorkflowEventType
from nerve.core.result import error_text
from nerve.core.tracebacks import FailureTrace

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext

StreamName = Literal["stdout", "stderr"]
MAX_OUTPUT_CHARS = 64 * 1024
"""Characters of one step that are recorded."""
RECORD_COST_CHARS = 200
"""The overhead of an event, counted for each log record."""
FLUSH_INTERVAL_S = 0.1
"""Seconds for which prints are collected into one event."""


_LOCK = threading.Lock()
"""Held while the text of a step is collected; one for all steps, because most never need it."""


class StepOutput:
    """The output of one step: until it is closed, what the code prints and logs becomes events of the step.

    Any thread may write; the event loop emits the events.
    """

    is_closed = False
    """Whether the step has ended; a thread of it may still run."""
    _used_chars = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, context: ExecutionContext) -> None:
        # Little: this is created for every step, and few of them print something.
        self.context, self._loop = context, asyncio.get_running_loop()
        if not LogRecordFactory.is_installed:
            LogRecordFactory.install()
        self._token = CURRENT_OUTPUT.set(self)

    @cached_property
    def _pending(self) -> list[tuple[str, dict[str, Any]]]:
        return []

    def close(self) -> None:
        """Emit what is left; the step has ended."""
        try:
            CURRENT_OUTPUT.reset(self._token)
        except ValueError:
            pass  # the garbage collector closes a dropped coroutine in another context
        self.is_closed = True
        if self._used_chars:
            self._emit_rest()

    def write(self, stream: StreamName, text: str) -> None:
        """Record printed text."""
        with _LOCK:
            text = self._limit(text)
            if not text:
                return
            last = self._pending[-1] if self._pending else None
            if last is not None and last[1].get("stream") == stream:
                last[1]["text"] += text
            else:
                data = {"stream": stream, "text": text, "printed": True}
                self._add(WorkflowEventType.OUTPUT_CHUNK, data)

    def write_record(self, record: logging.LogRecord) -> None:
        """Record a log record, with the traceback of the exception it reports."""
        message = message_of(record)
        with _LOCK:
            self._used_chars += RECORD_COST_CHARS
            if message := self._limit(message):
                data = {"message": message, "level": record.levelname.lower(), "logger": record.name}
                self._add(WorkflowEventType.LOG, data)

    def _emit_rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if (omitted := self._used_chars - MAX_OUTPUT_CHARS) > 0:
            notice = f"\n[{omitted:,} more characters omitted]\n"
            chunk = {"stream": "stderr", "text": notice, "printed": True}
            self._pending.append((WorkflowEventType.OUTPUT_CHUNK, chunk))
        self._emit_pending()

    def _limit(self, text: str) -> str:
        """Count a text, and return the part of it that is recorded."""
        room = max(0, MAX_OUTPUT_CHARS - self._used_chars)
        self._used_chars += len(text)
        return text[:room]

    def _add(self, type: str, data: dict[str, Any]) -> None:
        self._pending.append((type, data))
        if len(self._pending) == 1:
            # A closed loop has no step that runs.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._start_timer)

    def _start_timer(self) -> None:
        if not self.is_closed and self._timer is None:
            self._timer = self._loop.call_later(FLUSH_INTERVAL_S, self._emit_pending)

    def _emit_pending(self) -> None:
        with _LOCK:
            pending, self._pending, self._timer = self._pending, [], None
        for type, data in pending:
            self.context.emit(type, data)


CURRENT_OUTPUT: ContextVar[StepOutput | None] = ContextVar("CURRENT_OUTPUT", default=None)
"""The output of the step that the current task or thread belongs to."""


def open_output() -> StepOutput | None:
    """Return the output of the running step; None outside of steps."""
    output = CURRENT_OUTPUT.get()
    return None if output is None or output.is_closed else output


# -- log records ---------------------------------------------------------------------------------------


def message_of(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception as error:  # the arguments do not match the format, which logging reports itself
        message = f"{record.msg} ({error_text(error)})"
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    trace = FailureTrace.of(raised).traceback
    return f"{message}\n{trace}" if trace else message


class LogRecordFactory:
    """Creates log records as before, and adds those of steps to the output of their step.

    A handler of the root logger would see the same, but `logging.basicConfig` of the program would then do
    nothing, and without other handlers warnings would no longer be printed.
    """

    is_installed: ClassVar[bool] = False

    def __init__(self, previous: Any) -> None:
        self._previous = previous

    @classmethod
    def install(cls) -> None:
        """Capture the log records of steps from now on, in the whole process."""
        cls.is_installed = True
        logging.setLogRecordFactory(cls(logging.getLogRecordFactory()))

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._previous(*args, **kwargs)
        output = open_output()
        # Nerve reports to its own log; a record without a name is about to be filled from another one.
        if output is not None and record.name and record.name.partition(".")[0] != "nerve":
            output.write_record(record)
        return record


# -- standard streams ----------------------------------------------------------------------------------


class StepStream:
    """A standard stream: text of a step goes to the output of the step, other text to `target`."""

    def __init__(self, name: StreamName, target: IO[str]) -> None:
        self._name: StreamName = name
        self.target = target

    def write(self, text: str) -> int:
        output = open_output()
        if output is None:
            return self.target.write(text)
        # A handler that writes to standard error prints a record that is already captured.
        if sys._getframe(1).f_code is not logging.StreamHandler.emit.__code__:
            output.write(self._name, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@contextmanager
def capture_standard_streams(redirect_stdout: bool = False) -> Iterator[None]:
    """Capture what steps print; with `redirect_stdout`, other text goes to standard error.

    Log records of level INFO are captured too, unless the program sets a level itself.
    """
    stdout, stderr, root = sys.stdout, sys.stderr, logging.getLogger()
    previous_level = root.level
    if previous_level == logging.WARNING:
        root.setLevel(logging.INFO)
    streams: Any = (StepStream("stdout", stderr if redirect_stdout else stdout), StepStream("stderr", stderr))
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        if root.level == logging.INFO:
            root.setLevel(previous_level)
