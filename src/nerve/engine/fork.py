"""Fork: a new run whose journal starts as a copy of another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nerve.core.limits import raised
from nerve.core.values import AROUND, decode, encode
from nerve.core.workflow.replay import Row as AnyRow
from nerve.core.workflow.replay import (
    is_child,
    unclear,
)
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.engine.children import attempts, child_id
from nerve.engine.commands import ignore
from nerve.engine.cuts import Cut, kept
from nerve.engine.failures import failures
from nerve.engine.journal import Journal
from nerve.engine.records import ABOUT, call_key, ids_of, limits_of, raised_for_steps, resets_in, step_of
from nerve.store.port import ReplyRow, Row, RunRow

if TYPE_CHECKING:
    from nerve.engine.local import LocalEngine

UNCHANGED: Any = ...


def checked(overrides: Any) -> dict[str, dict[str, Any]]:
    """Overrides as they are given to a fork, if they have the shape of some."""
    given: dict[Any, Any] = dict(overrides) if isinstance(overrides, Mapping) else {None: overrides}
    if not all(isinstance(path, str) and isinstance(fields, Mapping) for path, fields in given.items()):
        such = "{'/build': {'command': 'make'}}"
        raise ValueError(f"overrides are settings of steps by their paths, such as {such}, not {overrides!r}")
    return {path: dict(fields) for path, fields in given.items()}


async def fork(
    engine: LocalEngine,
    source: str,
    at: str | None,
    input: Any,
    overrides: Mapping[str, Mapping[str, Any]],
    key: str | None = None,
    limits: Mapping[str, Any] = MappingProxyType({}),
    reply: ReplyRow | None = None,
) -> WorkflowRun:
    """Start a run that takes over what `source` has settled, and goes its own way from the path `at` on."""
    row, past = found(engine, source)
    start = decode(past[0].data)
    changed = checked(overrides)
    if input is not UNCHANGED and at is not None:
        changed.setdefault(at, {})["input"] = input
    given = input if input is not UNCHANGED and at is None else start["input"]
    anew = encode(given, canonical=True) != encode(start["input"], canonical=True)
    paths = list(dict.fromkeys([*([at] if at is not None else []), *changed]))
    cut = Cut.at(paths, past, engine.child_asked, anew)
    run = WorkflowRun(engine.workflow(row), given, start["params"], about=about_of(start))
    new = {"at": at, "overrides": {**start.get("overrides", {}), **changed}} | keyed(key)
    return await begin(engine, copies(engine, row, past, run, cut, new, limits), reply)


async def retry(
    engine: LocalEngine, source: str, key: str | None = None, reply: ReplyRow | None = None
) -> WorkflowRun:
    """Start a run that takes over what `source` has settled, and runs again what failed, in children too."""
    row, past = found(engine, source)
    start = decode(past[0].data)
    failed = failures(past)
    cut = Cut.again(past, failed, engine.child_asked)
    run = WorkflowRun(engine.workflow(row), start["input"], start["params"], about=about_of(start))
    new = {"at": next(iter(failed), None)} | keyed(key)
    return await begin(engine, copies(engine, row, past, run, cut, new), reply)


def found(engine: LocalEngine, source: str) -> tuple[RunRow, list[Row]]:
    """A run that is to be forked, and what has happened to it."""
    row = engine.store.run(source)
    past = engine.store.events(source)
    if row is None or not past:
        raise ValueError(f"Workflow run '{source}' not found")
    if not engine.owns(row):
        ours = f"not to '{engine._name}': fork it, or try it again, there"
        raise ValueError(f"run '{source}' belongs to session '{row.session}', and {ours}")
    return row, past


def keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"key": key}


async def begin(engine: LocalEngine, made: Sequence[Copy], reply: ReplyRow | None) -> WorkflowRun:
    """Write a fork, which is the last of these, and the child runs that go on with it, and drive it."""
    for each in made:
        if (folder := each.run.workflow.artifacts) is not None:
            await asyncio.to_thread(copy_artifacts, folder, each.source, each.run.run_id)
    run = made[-1].run
    await asyncio.gather(*(write(engine, each, reply if each.run is run else None) for each in made))
    engine.revive(run)
    return run


def copy_artifacts(folder: Path, source: str, run: str) -> None:
    """Give a fork the files that the steps it takes over have written; links stay links."""
    if (folder / source).is_symlink() or not (folder / source).is_dir():
        return
    from shutil import copytree  # it takes milliseconds to import, and few need it

    try:
        copytree(folder / source, folder / run, symlinks=True)
    except OSError as error:
        raise ValueError(f"the files in {folder / source} cannot be copied for a fork: {error}") from error


def forked_from(engine: LocalEngine, run: str) -> str | None:
    """The run that a run was forked from."""
    start = decode(engine.store.events(run, limit=1)[0].data)
    found: str | None = start.get("forked_from", {}).get("run")
    return found


def check_source(engine: LocalEngine, key: str, run: str, source: str) -> None:
    """Raise ValueError for a key that is of another run than a fork of this one."""
    if forked_from(engine, run) != source:
        raise ValueError(f"key '{key}' is that of run '{run}', which is no fork of '{source}'")


@dataclass(slots=True)
class Copy:
    """A run that is about to begin with what another has settled."""

    source: str
    run: WorkflowRun
    start: dict[str, Any]
    rows: list[Row]


def copies(
    engine: LocalEngine,
    row: RunRow,
    past: list[Row],
    run: WorkflowRun,
    cut: Cut,
    new: dict[str, Any],
    limits: Mapping[str, Any] = MappingProxyType({}),
) -> list[Copy]:
    """A fork, after the child runs that it has yet to hear from."""
    rows, resets = kept(past, cut), resets_in(past)
    before = decode(past[0].data)
    start = {
        **{name: value for name, value in before.items() if name not in ("key", "parent")},
        "run_id": run.run_id,
        "input": run._input,
        "definition": run.workflow.definition()[0],
        "forked_from": {
            "run": row.run,
            "at": new.pop("at", None),
            "copied": len(rows) + 1,
            "origins": ids_of(before) or [row.run],
            **doubts(past, cut),
        },
        **bounds(past, limits),
        **new,
    }
    made: list[Copy] = []
    for number, taken in enumerate(rows):
        if is_child(taken) and (source := open_child(taken, rows)) is not None:
            rows[number] = renamed(taken, source, child_id(run.run_id, taken.path))
            if tried := attempts(engine.store, row.run, call_key(taken.path, resets)):
                made += child_copies(engine, tried[-1], run.run_id, taken.path, cut)
    return [*made, Copy(row.run, run, start, rows)]


def child_copies(engine: LocalEngine, row: RunRow, parent: str, path: str, around: Cut) -> list[Copy]:
    past = engine.store.events(row.run)
    if not past or not engine.has_workflow(row):
        return []
    start = decode(past[0].data)
    child = WorkflowRun(
        engine.workflow(row),
        start["input"],
        start["params"],
        run_id=child_id(parent, path),
        about=about_of(start),
    )
    asked, anew = engine.child_asked, path in around.outdated
    retried = path in around.retried
    cut = Cut.again(past, failures(past), asked, anew) if retried else Cut.at((), past, asked, anew)
    return copies(engine, row, past, child, cut, {"parent": parent})


def write(engine: LocalEngine, made: Copy, reply: ReplyRow | None) -> asyncio.Future[None]:
    """Note the journal of a run with what it takes over; done when that is on disk."""
    run, start = made.run, made.start
    run._state, run._started_at = WorkflowState.RUNNING, datetime.now(UTC)
    engine.listened(run)
    journal = Journal(
        run.run_id,
        0,
        engine.writer,
        lambda at: engine.row(run, WorkflowState.RUNNING, None, start, at),
        lambda rows: engine.show(run, rows),
        ignore,
    )
    journal.pin(engine.definition(run.workflow))
    journal.row_changed()
    journal.note("workflow_started", "", encode(start, deep=AROUND))
    journal.keep(reply)
    for taken in made.rows:
        journal.note(taken.type, taken.path, taken.data, taken.settles)
    return journal.written_upto(journal.seq)


def doubts(past: Iterable[AnyRow], cut: Cut) -> dict[str, list[str]]:
    """The leaves of which nobody knows whether they happened; to name one is to say that it is run again."""
    found = sorted(path for path in unclear(past) if step_of(path) not in cut.paths)
    return {"unclear": found} if found else {}


def bounds(past: list[Row], limits: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a run and of its steps, as they were raised last, and as they are raised now."""
    own, steps = raised(limits)
    of_steps = raised_for_steps(past)
    for path, more in steps.items():
        of_steps[path] = {**of_steps.get(path, {}), **more}
    made: dict[str, Any] = {"limits": limits_of(past).raised(own).to_dict()}
    return made | ({"raised": of_steps} if of_steps else {})


def about_of(start: Mapping[str, Any]) -> dict[str, Any]:
    """A fork is found by the same names, and hears the same signals."""
    return {name: start[name] for name in ABOUT if name in start}


def open_child(row: Row, rows: Iterable[Row]) -> str | None:
    """The child run that a row has started, if it has not been heard from."""
    settled = any(other.settles and other.path == row.path for other in rows)
    return None if settled else str(decode(row.data)["child"])


def renamed(row: Row, before: str, now: str) -> Row:
    """The start of a child run that goes on under an id of its own."""
    return row._replace(data=row.data.replace(f'"child":"{before}"', f'"child":"{now}"', 1))
