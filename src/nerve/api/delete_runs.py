"""Delete one run or those that ended long ago, with their logs and artifacts."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.api.artifacts import RUN_ID_PATTERN
from nerve.api.callers import Caller
from nerve.api.errors import ApiError
from nerve.api.lookup import find_run_row
from nerve.api.pending_reply import append_to_store
from nerve.core.triggers import is_delivery_key
from nerve.engine import retention
from nerve.engine.run_chain import iterate_chain
from nerve.journal.index import JournalIndex
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.store.port import Append, ReplyRow

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.store.port import RunRow, Store

DAY_S = 86_400.0
WORKSPACES = ".nerve/workspaces"
MAX_KEPT_AT_ONCE = 500
"""How many start keys are written in one commit."""
RUNS_DELETED = "runs deleted"
RECORDED_RUNS = 1000
"""How many deleted runs one change of the session names."""
MAX_LISTED_RUNS = 100
"""How many runs the reply lists."""


async def collect(session: Session, request: models.DeleteRunsRequest) -> models.DeleteRunsResponse:
    """Delete old runs; keep open runs and the runs that belong to them."""
    engine, now = session.engine, session.engine.clock.time()
    store, before = engine.store, now - request.older_than * DAY_S

    def is_busy(run: str) -> bool:
        return has_workspaces(session.project, run) or engine.is_busy(run)

    rows = retention.find_expired_runs(store, before, session=session.name, is_busy=engine.is_busy)
    kept = [row for row in rows if has_workspaces(session.project, row.run)]
    if not request.dry_run and (given_up := [row.run for row in kept if row.run in request.discard]):
        await asyncio.to_thread(discard_workspaces, session.project, given_up)
        kept = [row for row in kept if row.run not in given_up]
    if kept or request.discard:
        rows = retention.find_expired_runs(store, before, session=session.name, is_busy=is_busy)
    await asyncio.sleep(0)
    output = request.output_older_than
    response = await delete_rows(
        session, request.caller, rows, request.dry_run, None if output is None else now - output * DAY_S
    )
    response = response.model_copy(update={"kept": [describe_kept(session.project, row) for row in kept]})
    if request.dry_run:
        return response
    replies = await asyncio.to_thread(store.forget_replies, session.name, before)
    return response.model_copy(update={"replies": replies})


async def delete(session: Session, request: models.DeleteRunRequest) -> models.DeleteRunsResponse:
    """Delete a run that has ended, with its child runs."""
    engine = session.engine
    row = find_run_row(session, request.run)
    parent = engine.store.run(row.parent) if row.parent is not None else None
    if parent is not None:
        raise ApiError("conflict", f"Run '{row.run}' belongs to run '{parent.run}'", "Delete that run.")
    rows = list(iterate_run_tree(engine.store, row))
    for each in rows:
        if each.ended is None:
            raise ApiError("conflict", f"Run '{each.run}' is {each.state}", f"Stop it: nerve stop {row.run}")
        if has_workspaces(session.project, each.run):
            raise ApiError(
                "conflict",
                f"Run '{each.run}' has a workspace with work that is not merged",
                f"Look at it: nerve workspaces. Give it up: nerve workspaces remove {each.run} --discard",
            )
        if engine.is_busy(each.run) or not await engine.wait_finished(each.run):
            raise ApiError("busy", f"Run '{each.run}' is about to end")
    return await delete_rows(session, request.caller, rows, dry_run=False)


def iterate_run_tree(store: Store, row: RunRow) -> Iterator[RunRow]:
    """Yield a run and all its child runs."""
    yield row
    for _, call in JournalIndex(store.events(row.run)).children.started:
        if call.child is not None and (first := store.run(call.child)) is not None:
            for child in iterate_chain(store, first):
                yield from iterate_run_tree(store, child)


async def delete_rows(
    session: Session,
    caller: Caller,
    rows: Sequence[RunRow],
    dry_run: bool,
    chunks_older_than: float | None = None,
) -> models.DeleteRunsResponse:
    """Delete runs with their files, or report them; empty the output before a time of those that stay."""
    files = find_run_files(session.project, [row.run for row in rows])
    if not dry_run:
        await keep_delivery_keys(session, rows)
        await asyncio.to_thread(record_deletion, session, caller, rows)
        await session.engine.delete_executions(rows)

    def remove_files(runs: Iterable[str]) -> None:
        delete_files(file for run in runs for file in files.get(run, ()))
        if (session.project / WORKSPACES).is_dir():
            delete_snapshots(session.project, runs)

    deletion = await retention.delete_expired_runs(
        session.engine.store,
        0.0,
        dry_run,
        chunks_older_than=chunks_older_than,
        session=session.name,
        expired=rows,
        on_delete=remove_files,  # first, so that a crash leaves the run to find them by
    )
    oldest = [
        models.DeletedRun(
            run_id=row.run,
            workflow=row.workflow,
            state=row.state,
            ended_at=datetime.fromtimestamp(row.ended or 0.0, UTC),
        )
        for row in rows[:MAX_LISTED_RUNS]
    ]
    return models.DeleteRunsResponse(
        dry_run=dry_run, files=sum(map(len, files.values())), oldest=oldest, **deletion._asdict()
    )


async def keep_delivery_keys(session: Session, rows: Sequence[RunRow]) -> None:
    """Keep the start keys of deliveries among the replies, because their senders may repeat them."""
    now = session.engine.clock.time()
    kept = [
        ReplyRow(session.name, row.key, now, f"delete {row.run}", row.run)
        for row in rows
        if row.key is not None and is_delivery_key(row.key)
    ]
    for start in range(0, len(kept), MAX_KEPT_AT_ONCE):
        await append_to_store(session, Append("", 0, (), replies=kept[start : start + MAX_KEPT_AT_ONCE]))


def record_deletion(session: Session, caller: Caller, rows: Sequence[RunRow]) -> None:
    """Record which runs are about to be deleted, for the audit: their journals will not say it."""
    now = session.engine.clock.time()
    for first in range(0, len(rows), RECORDED_RUNS):
        runs = {row.run: row.workflow for row in rows[first : first + RECORDED_RUNS]}
        session.people.record(now, RUNS_DELETED, caller.to_event_data(), {"runs": runs})


def find_run_files(project: Path, runs: Iterable[str]) -> dict[str, list[Path]]:
    """Return the logs and artifacts of runs in the folders of a project; symbolic links are not followed."""
    root = os.path.realpath(project)
    listings = [
        (directory, names)
        for folder in PROJECT_FOLDER_NAMES
        for directory in (project / folder / "logs", project / folder / "artifacts")
        if os.path.realpath(directory) == os.path.join(root, folder, directory.name)
        if (names := set(list_directory(directory)))
    ]
    files_by_run = {
        run: [
            directory / name
            for directory, names in listings
            for name in (run, f"{run}.jsonl")
            if name in names
        ]
        for run in runs
        if RUN_ID_PATTERN.fullmatch(run)
    }
    return {run: files for run, files in files_by_run.items() if files}


def list_directory(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def has_workspaces(project: Path, run: str) -> bool:
    """Return whether a run has a workspace that was kept."""
    return bool(RUN_ID_PATTERN.fullmatch(run)) and any((project / WORKSPACES / run).glob("*.json"))


def describe_kept(project: Path, row: RunRow) -> models.KeptRun:
    names = sorted(file.stem for file in (project / WORKSPACES / row.run).glob("*.json"))
    return models.KeptRun(
        run_id=row.run,
        workflow=row.workflow,
        ended_at=datetime.fromtimestamp(row.ended or 0.0, UTC),
        workspaces=names,
    )


def discard_workspaces(project: Path, runs: Iterable[str]) -> None:
    """Remove the workspaces of runs, with work that is not merged; their snapshots stay with the runs."""
    from nerve.workspaces.checkout import Workspaces  # imported here: few projects have workspaces

    workspaces = Workspaces(project)
    for run in runs:
        for record in workspaces.files.innermost_first(run):
            workspaces.close(record, discard=True)


def delete_snapshots(project: Path, runs: Iterable[str]) -> None:
    from nerve.workspaces.checkout import Workspaces  # imported here: few projects have workspaces

    workspaces = Workspaces(project)
    for run in runs:
        workspaces.delete_snapshots(run)


def delete_files(files: Iterable[Path]) -> None:
    for file in files:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
