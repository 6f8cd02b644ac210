"""What must be true of a database after every schedule of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psycopg

from e2e.invariants import journals, left_alive, lost, written_down
from faults.clients import Clients
from nerve.store.port import Store
from nerve.store.postgres import PostgresStore

LATE_S = 3.0
"""Seconds in which a process that continues after a fault can begin a step that it was given before."""
ONCE_STEPS = ("/charge",)


class Execution(NamedTuple):
    """One line that a step has written when it began."""

    run: str
    path: str
    program: str
    at: float


class Disturbance(NamedTuple):
    """A time in which a program was paused or cut off."""

    program: str
    began: float
    ended: float


def find_violations(
    url: str, clients: Clients, folder: Path, executed: Path, disturbances: Sequence[Disturbance] = ()
) -> list[str]:
    """Return everything that is not as it must be; all programs have ended, the database is there."""
    password = url.split(":")[2].split("@")[0]
    tokens = [file.read_text().strip() for file in folder.rglob("*.token")]
    found = [*clients.problems, *left_alive(folder), *written_down(folder, [password, *tokens])]
    found += [*find_damaged_indexes(url), *find_late_rows(url)]
    executions = read_executions(executed)
    with closing(PostgresStore(url, None)) as store:
        found += [*journals(store), *lost(store, clients.acked)]
        found += (f"{row.run} is {row.state}" for row in store.runs() if row.ended is None)
        found += find_repeated_steps(store, executions, disturbances)
    found += find_repeated_effects(executions)
    return found


def find_damaged_indexes(url: str) -> Iterator[str]:
    """Compare every index with its table, as far as PostgreSQL can."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("create extension if not exists amcheck")
        indexes = "select i.oid::regclass::text from pg_class i join pg_am a on a.oid = i.relam"
        for (index,) in db.execute(f"{indexes} where a.amname = 'btree' and i.relkind = 'i'").fetchall():
            try:
                db.execute("select bt_index_check(%s::regclass, true)", (index,))
            except psycopg.Error as error:
                yield f"the index {index} is damaged: {error}"


def find_late_rows(url: str) -> Iterator[str]:
    """Find rows that an attempt at a step has written after a later attempt has."""
    query = "select run, source, min(seq), max(seq) from nerve.event_sources group by run, source"
    with psycopg.connect(url) as db:
        sources = db.execute(query).fetchall()
    attempts: dict[tuple[str, str], list[tuple[list[int], int, int]]] = {}
    for run, source, first, last in sources:
        path, mark, attempt = source.rpartition("#")
        if mark:  # the rows of the body have no attempt
            numbers = [int(number) for number in attempt.split(".")]
            attempts.setdefault((run, path), []).append((numbers, first, last))
    for (run, path), rows in attempts.items():
        for (_, _, last), (_, first, _) in pairwise(sorted(rows)):
            if last > first:
                yield f"rows of an earlier attempt at {path} of {run} follow those of a later one"


def read_executions(file: Path) -> list[Execution]:
    lines = [line.split(" ") for line in file.read_text().splitlines()] if file.exists() else []
    return [Execution(run, path, program, float(at)) for run, path, program, at in lines]


def find_repeated_steps(
    store: Store, executions: Sequence[Execution], disturbances: Sequence[Disturbance]
) -> Iterator[str]:
    """Find steps that began after their completion was recorded.

    A program that was paused or cut off before the completion was given the step before, too: it may begin
    it until it knows better.
    """
    completed: dict[tuple[str, str], float] = {}
    for row in store.runs():
        steps = (each for each in store.events(row.run) if each.type == "node_completed")
        completed.update({(row.run, each.path): each.at for each in steps})
    for each in executions:
        at = completed.get((each.run, each.path))
        if at is not None and each.at > at and not is_excused(each, at, disturbances):
            late = f"{each.at - at:.3f} s after its completion"
            yield f"step {each.path} of {each.run} ran again in {each.program}, {late}"


def is_excused(execution: Execution, completed_at: float, disturbances: Sequence[Disturbance]) -> bool:
    return any(
        each.program == execution.program and each.began < completed_at and execution.at < each.ended + LATE_S
        for each in disturbances
    )


def find_repeated_effects(executions: Sequence[Execution]) -> Iterator[str]:
    """Find steps that must be executed once and were executed again."""
    counts = Counter((each.run, each.path) for each in executions if each.path in ONCE_STEPS)
    yield from (
        f"step {path} of {run} was executed {count} times"
        for (run, path), count in counts.items()
        if count > 1
    )
