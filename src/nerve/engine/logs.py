"""Logs: runs whose definition has a folder write lines of JSON there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL
from nerve.engine.jsonl import JsonlLog, lacks_its_end, log_file
from nerve.store.port import Row

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

RECENT = 100
"""How many runs that have ended last are looked at again after a restart."""

OVER = [state.value for state in FINAL]


def attach(run: WorkflowRun, past: Iterable[Row] = ()) -> None:
    """Let a run write its log, if it has one, and first what the file lacks of its past."""
    folder, names = run.workflow.logs, run.workflow.session
    if folder is None or names is None:
        return
    log = JsonlLog(log_file(folder, run.run_id), run.workflow_id, project=names.project)
    if not run.is_complete and (events := [run._event(row) for row in past]):
        log.catch_up(events)
    run._sinks.append(log)


def end_all(engine: LocalEngine, session: str) -> None:
    """Write the last lines of logs whose runs had ended when the process died."""
    ended = sorted(engine.store.runs(session=session, states=OVER), key=lambda row: row.ended or 0.0)
    for row in ended[-RECENT:]:
        folder = engine.workflow(row).logs if engine.has_workflow(row) else None
        if folder is not None and lacks_its_end(log_file(folder, row.run)):
            run = engine.handle(row)
            for log in run._sinks:  # an unreadable run has none
                if isinstance(log, JsonlLog):
                    log.catch_up(run.events)
