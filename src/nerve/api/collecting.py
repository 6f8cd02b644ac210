"""Collecting: runs that ended long ago are deleted, with their logs and artifacts."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.engine import retention
from nerve.notations.discovery import FOLDERS

if TYPE_CHECKING:
    from nerve.core.session import Session

DAY = 86_400.0
SHOWN = 100
"""How many of the runs are named."""
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{7,127}")
"""What may be the name of a file that is deleted."""


async def collect(session: Session, asked: models.Collect) -> models.Collected:
    """Runs that are open, or belong to one that is, stay."""
    engine, now = session.engine, time.time()
    store, before = engine.store, now - asked.older_than * DAY

    def busy(run: str) -> bool:
        return run in engine.drives or run in engine.leaving

    rows = retention.due(store, before, session=session.name, busy=busy)
    await asyncio.sleep(0)
    files = files_of(session.project, [row.run for row in rows])

    def remove_files(runs: Iterable[str]) -> None:
        remove(file for run in runs for file in files.get(run, ()))

    output = asked.output_older_than
    done = await retention.collect(
        store,
        before,
        asked.dry_run,
        chunks_older_than=None if output is None else now - output * DAY,
        session=session.name,
        found=rows,
        before=remove_files,  # what is cut off between the two is found again by the run
    )
    replies = 0
    if not asked.dry_run:
        replies = await asyncio.to_thread(store.forget_replies, session.name, before)
    oldest = [
        models.OldRun(
            run_id=row.run,
            workflow=row.workflow,
            state=row.state,
            ended_at=datetime.fromtimestamp(row.ended or 0.0, UTC),
        )
        for row in rows[:SHOWN]
    ]
    return models.Collected(
        dry_run=asked.dry_run,
        files=sum(map(len, files.values())),
        replies=replies,
        oldest=oldest,
        **done._asdict(),
    )


def files_of(project: Path, runs: Iterable[str]) -> dict[str, list[Path]]:
    """The logs and artifacts of runs in the folders of a project, and never what a link leads to."""
    root = os.path.realpath(project)
    kept = [
        (place, names)
        for folder in FOLDERS
        for place in (project / folder / "logs", project / folder / "artifacts")
        if os.path.realpath(place) == os.path.join(root, folder, place.name)
        if (names := set(listed(place)))
    ]
    found = {
        run: [place / name for place, names in kept for name in (run, f"{run}.jsonl") if name in names]
        for run in runs
        if ID.fullmatch(run)
    }
    return {run: files for run, files in found.items() if files}


def listed(place: Path) -> list[str]:
    try:
        return os.listdir(place)
    except OSError:
        return []


def remove(files: Iterable[Path]) -> None:
    for file in files:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
