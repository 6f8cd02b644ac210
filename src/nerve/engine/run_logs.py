"""JSONL logs of runs whose definition names a log folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nerve.core.events import Sink
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.core.workflow.workflow import Workflow
from nerve.store.port import EventRow, RunRow, Store

LAST_EVENTS = 1000
"""Number of last events whose runs are checked after a restart; a log lacks only what was written last."""


def attach_log(run: WorkflowRun, rows: Iterable[EventRow] = ()) -> None:
    """Attach the log of a run, if it has one, after writing what the file lacks."""
    workflow = run.workflow
    folder = workflow.logs
    if folder is None or (names := workflow.session) is None:
        return
    from nerve.engine.jsonl_log import JsonlLog, log_file_path  # few definitions name a folder

    log = JsonlLog(
        log_file_path(folder, run.run_id),
        run.workflow_id,
        project=names.project,
        hides_payloads=names.codec is not None,
    )
    if not run.is_complete and (events := [run.event_from_row(row) for row in rows]):
        log.catch_up(events)
    run.sinks.append(log)


def drop_logs(sinks: Iterable[Sink]) -> list[Sink]:
    """Return the sinks of a run without its log."""
    from nerve.engine.jsonl_log import JsonlLog

    return [sink for sink in sinks if not isinstance(sink, JsonlLog)]


def complete_truncated_logs(
    store: Store,
    session: str,
    find_workflow: Callable[[RunRow], Workflow],
    run_handle: Callable[[RunRow], WorkflowRun],
) -> None:
    """Complete the logs of runs that had ended when the process died."""
    rows = map(store.run, store.last_written_runs(LAST_EVENTS))
    for row in rows:
        if row is None or row.session != session or row.state not in FINAL_STATE_VALUES:
            continue
        if (folder := find_workflow(row).logs) is None:
            continue
        from nerve.engine.jsonl_log import JsonlLog, is_log_truncated, log_file_path

        # The final event is committed before sinks see it, so a crash in between loses only the line in the
        # log.
        if is_log_truncated(log_file_path(folder, row.run)):
            run = run_handle(row)
            for log in run.sinks:  # an unreadable run has none
                if isinstance(log, JsonlLog):
                    log.catch_up(run.events)
