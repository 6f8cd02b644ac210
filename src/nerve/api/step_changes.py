"""What the steps of a run have changed in their workspaces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.lookup import find_run_row
from nerve.core.events import STEP_SETTLED_EVENTS
from nerve.journal.events import CallSettled, decode_event
from nerve.journal.paths import is_within_step

if TYPE_CHECKING:
    from nerve.session import Session

ROWS_PER_TURN = 1000
MAX_DIFF_CHARS = 100_000
"""The characters of all differences of a reply."""


async def changes(session: Session, request: models.ListChangesRequest) -> models.ChangePage:
    """Return the files that steps of a run have changed in workspaces, with the differences."""
    row = find_run_row(session, request.run)
    records: dict[str, dict[str, Any]] = {}
    after = 0
    while rows := session.engine.store.events(row.run, after, ROWS_PER_TURN):
        after = rows[-1].seq
        for event in rows:
            is_wanted = request.path is None or is_within_step(event.path, request.path)
            if not is_wanted or event.type not in STEP_SETTLED_EVENTS:
                continue
            settled = decode_event(event)
            record = settled.attribute("workspace") if isinstance(settled, CallSettled) else None
            if record is not None:
                records.pop(event.path, None)
                if record.get("files"):
                    records[event.path] = record
        await asyncio.sleep(0)
    steps = await asyncio.to_thread(read_changes, session.project, records)
    return models.ChangePage(run_id=row.run, steps=steps)


def read_changes(project: Path, records: dict[str, dict[str, Any]]) -> list[models.StepChanges]:
    from nerve.workspaces.checkout import Workspaces  # imported here: few runs have workspaces

    workspaces, rest, steps = Workspaces(project), MAX_DIFF_CHARS, list[models.StepChanges]()
    for path, record in records.items():
        diff = workspaces.diff_of_snapshots(record["before"], record["after"], rest) if rest > 0 else None
        rest -= len(diff or "")
        steps.append(
            models.StepChanges(
                path=path,
                workspace=record["name"],
                files=record["files"],
                more_files=record.get("more_files", 0),
                diff=diff,
            )
        )
    return steps
