"""Copy all that a store has into a new one, of the same kind or another: completely, or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import NamedTuple

from nerve.project.store_url import is_store_url
from nerve.store import sqlite_copy
from nerve.store.portable_rows import EVENTS, RUNS, ReadableRows, WritableRows, copy_rows


class CopiedStore(NamedTuple):
    """How much was copied."""

    runs: int
    events: int


def copy_store(source: str, target: str, *, while_owned: bool = False) -> CopiedStore:
    """Copy a store, named by a file or a URL, into a new one; verify the hash chain of every journal.

    StoreInUse if a process owns the source, unless it is copied `while_owned`: then the copy has what was
    committed when it began. The target does not change if anything fails, or if this process dies.
    """
    if not (is_store_url(source) or is_store_url(target)):
        with nullcontext() if while_owned else sqlite_copy.exclusive_file(Path(source)):
            return CopiedStore(*sqlite_copy.copy_file(Path(source), Path(target)))
    with ExitStack() as resources:
        if not (while_owned or is_store_url(source)):
            resources.enter_context(sqlite_copy.exclusive_file(Path(source)))
        rows = resources.enter_context(_read_store(source, while_owned))
        with _write_store(target) as new_rows:
            counts = copy_rows(rows, new_rows)
    return CopiedStore(counts[RUNS.name], counts[EVENTS.name])


def _read_store(source: str, while_owned: bool) -> AbstractContextManager[ReadableRows]:
    if is_store_url(source):
        from nerve.store.postgres_rows import read_database

        return read_database(source, while_owned=while_owned)
    return sqlite_copy.read_file(Path(source))


def _write_store(target: str) -> AbstractContextManager[WritableRows]:
    if is_store_url(target):
        from nerve.store.postgres_rows import write_database

        return write_database(target)
    return sqlite_copy.write_file(Path(target))
