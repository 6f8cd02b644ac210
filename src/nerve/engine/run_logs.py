"""JSONL logs of runs whose definition names a log folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATES
from nerve.engine.jsonl_log import JsonlLog, is_log_truncated, log_file_path
from nerve.store.port import EventRow

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

MAX_REPAIRED_LOGS = 100
"""Number of most recently ended runs whose logs are checked after a restart."""

FINAL_STATE_VALUES = [state.value for state in FINAL_STATES]


def attach_log(run: WorkflowRun, rows: Iterable[EventRow] = ()) -> None:
    """Attach the log of a run, if it has one, after writing what the file lacks."""
    folder, names = run.workflow.logs, run.workflow.session
    if folder is None or names is None:
        return
    log = JsonlLog(log_file_path(folder, run.run_id), run.workflow_id, project=names.project)
    if not run.is_complete and (events := [run._event_from_row(row) for row in rows]):
        log.catch_up(events)
    run._sinks.append(log)


def complete_truncated_logs(engine: LocalEngine, session: str) -> None:
    """Complete the logs of runs that had ended when the process died."""
    ended = sorted(
        engine.store.runs(session=session, states=FINAL_STATE_VALUES), key=lambda row: row.ended or 0.0
    )
    for row in ended[-MAX_REPAIRED_LOGS:]:
        folder = engine.workflow_of(row).logs if engine.has_workflow(row) else None
        # The final event is committed before sinks see it, so a crash in between loses only the line in the
        # log.
        if folder is not None and is_log_truncated(log_file_path(folder, row.run)):
            run = engine.run_handle(row)
            for log in run._sinks:  # an unreadable run has none
                if isinstance(log, JsonlLog):
                    log.catch_up(run.events)
