"""The log of the server about failures: of attempts, steps and runs, with their tracebacks.

In a project with encryption it has their types and places only: messages may contain inputs and outputs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nerve.core.events import STEP_SETTLED_EVENTS, WorkflowEventType
from nerve.core.tracebacks import FailureTrace
from nerve.journal.events import CallSettled, NodeRetrying, RunFailed, decode_event
from nerve.telemetry.json_log import run_fields
from nerve.ui.failure_text import failure_text, traceback_lines
from nerve.ui.sanitize import indent_lines, sanitize_text

if TYPE_CHECKING:
    from nerve.core.nodes.base import NodeRegistry
    from nerve.core.workflow import WorkflowRun
    from nerve.engine.temporal.messages import LeafInput, LeafResult
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
    trace = FailureTrace(failure.location, failure.traceback)
    log_failure_of(
        level, what, (run.run_id, run.workflow_id, path), names, failure.error, failure.error_type, trace
    )


def log_failed_leaf(session: NodeRegistry, leaf: LeafInput, result: LeafResult) -> None:
    """Log the failure of a step that this worker has executed for a Temporal cluster."""
    error, error_type = result.result.get("error"), result.result.get("error_type")
    trace = FailureTrace(result.location, result.traceback)
    place = leaf.run_id, leaf.workflow, leaf.path
    log_failure_of(logging.WARNING, f"step {leaf.path} failed", place, session, error, error_type, trace)


def log_failure_of(
    level: int,
    what: str,
    place: tuple[str, str, str],
    names: NodeRegistry | None,
    error: str | None,
    error_type: str | None,
    trace: FailureTrace,
) -> None:
    """Log a failure at a place: a run, its workflow, and a path."""
    run_id, workflow, path = place
    # The log is a file that anyone who operates the server can read.
    is_hidden = names is not None and names.codec is not None
    reason = failure_text(None if is_hidden else error, error_type, trace.location)
    line = indent_lines(sanitize_text(f"run {run_id} of '{workflow}': {what}: {reason}"))
    lines = [] if is_hidden else traceback_lines(trace.traceback)
    about = run_fields(run_id, path, getattr(names, "tracing", None))
    log.log(level, "%s", "\n".join([line, *lines]), extra=about)
