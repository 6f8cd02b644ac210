"""The log of the server about failures: of attempts, steps and runs, with their tracebacks.

In a project with encryption it has their types and places only: messages may contain inputs and outputs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nerve.core.events import STEP_SETTLED_EVENTS, WorkflowEventType
from nerve.journal.events import CallSettled, NodeRetrying, RunFailed, decode_event
from nerve.telemetry.json_log import run_fields
from nerve.ui.failure_text import failure_text, traceback_lines
from nerve.ui.sanitize import indent_lines, sanitize_text

if TYPE_CHECKING:
    from nerve.core.workflow import WorkflowRun
    from nerve.store.port import EventRow

log = logging.getLogger("nerve")

FAILURE_EVENTS = (*STEP_SETTLED_EVENTS, WorkflowEventType.NODE_RETRYING, WorkflowEventType.FAILED)
"""The events that can report a failure; a node that returns a failure has completed."""


def log_failures(run: WorkflowRun, rows: list[EventRow]) -> None:
    """Log the failures among new events of a run."""
    for row in rows:
        event = decode_event(row) if row.type in FAILURE_EVENTS else None
        match event:
            case CallSettled() if event.has_failed:
                log_failure(logging.WARNING, f"step {row.path} failed", run, event, row.path)
            case NodeRetrying(error=str()):
                log_failure(logging.WARNING, f"step {row.path} is retried", run, event, row.path)
            case RunFailed():
                log_failure(logging.ERROR, "failed", run, event)


def log_failure(
    level: int,
    what: str,
    run: WorkflowRun,
    failure: CallSettled | NodeRetrying | RunFailed,
    path: str = "",
) -> None:
    names = run.workflow.session
    # The log is a file that anyone who operates the server can read.
    is_hidden = names is not None and names.codec is not None
    error = None if is_hidden else failure.error
    reason = failure_text(error, failure.error_type, failure.location)
    line = indent_lines(sanitize_text(f"run {run.run_id} of '{run.workflow_id}': {what}: {reason}"))
    trace = [] if is_hidden else traceback_lines(failure.traceback)
    about = run_fields(run.run_id, path, getattr(names, "tracing", None))
    log.log(level, "%s", "\n".join([line, *trace]), extra=about)
