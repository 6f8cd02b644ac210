"""killed_program.py FILE TYPE PATH: run a program, and kill its process as soon as an event is on disk."""

import os
import runpy
import signal
import sys
from typing import Any

from nerve.store import sqlite

FILE, TYPE, PATH = sys.argv[1:]


class DeadlyStore(sqlite.SqliteStore):
    """Kills its process after the commit of an event of one type at one path."""

    def append(self, batch: Any, patience: float = 30.0) -> Any:
        outcome = super().append(batch, patience)
        if any(row.type == TYPE and row.path == PATH for part in batch for row in part.rows):
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


if __name__ == "__main__":
    sqlite.SqliteStore = DeadlyStore  # type: ignore[misc]
    runpy.run_path(FILE, run_name="__main__")
