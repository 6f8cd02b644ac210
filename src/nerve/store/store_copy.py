"""Copy all that a store has into a new one, of the same kind or another, complete or not at all."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from nerve.store import sqlite_copy


class CopiedStore(NamedTuple):
    """How much was copied."""

    runs: int
    events: int


def copy_store(source: str, target: str, *, while_owned: bool = False) -> CopiedStore:
    """Copy a store, named by a file or a URL, into a new one; verify the hash chain of every journal.

    StoreInUse if a process owns the source, unless it is copied `while_owned`: then the copy has what was
    committed when it began. The target does not change if anything fails, or if this process dies.
    """
    with ExitStack() as resources:
        if not while_owned:
            resources.enter_context(sqlite_copy.exclusive_file(Path(source)))
        return CopiedStore(*sqlite_copy.copy_file(Path(source), Path(target)))
