"""The log of a server as JSON lines, with the run and the step that a record belongs to."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

from nerve.core.step_output import open_output
from nerve.core.trace_context import StepTracing, TraceParent, tracing_of


def run_fields(run_id: str, path: str, tracing: StepTracing | None) -> dict[str, Any]:
    """Return the `extra` of a log record about a run, or about a step of it."""
    return {
        "nerve_run": run_id,
        "nerve_path": path,
        "nerve_span": None if tracing is None else tracing.find_span(run_id, path),
    }


class JsonLogFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line.

    What the code of a step logs has its run and its path; with telemetry, also its trace and span.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        run, path, span = find_place(record)
        if run is not None:
            fields["run"] = run
        if path:
            fields["path"] = path
        if span is not None:
            fields |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = self.formatException(record.exc_info)
        # ASCII only: line separators of Unicode and unpaired surrogates stay escapes.
        return json.dumps(fields)


def find_place(record: logging.LogRecord) -> tuple[str | None, str, TraceParent | None]:
    """Return the run, the path and the span that a record belongs to, as far as they are known."""
    if hasattr(record, "nerve_run"):
        about: Any = record
        return about.nerve_run, about.nerve_path, about.nerve_span
    output = open_output()
    if output is None or not output.context.run_id:
        return None, "", None
    context, tracing = output.context, tracing_of(output.context)
    span = None if tracing is None else tracing.find_span(context.run_id, context.path)
    return context.run_id, context.path, span


def may_log(record: logging.LogRecord) -> bool:
    """Return whether the log may have a record: code of steps may log the payloads of an encrypted store."""
    output = open_output()
    session = None if output is None else output.context.session
    is_own = record.name.partition(".")[0] == "nerve"
    return is_own or getattr(session, "codec", None) is None


@contextmanager
def log_as_json(stream: IO[str]) -> Iterator[None]:
    """Write all log records to a stream as JSON lines in a block."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLogFormatter())
    handler.addFilter(may_log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
