"""What can go wrong, as one tree.

NerveError
├── NodeFailed            a node raised; names the path, the type and the text of its error
├── WorkflowFailed        a run failed in another process, or a child run failed
├── Rejected              a person said no, and the run ends as cancelled
├── RunHeld               a run needs a decision before it can go on
├── WorkflowAbsent        the code of a run is not in the session (a ValueError, too)
├── LimitReached          a run reached one of its limits
├── NotJson               a value that JSON cannot carry
├── Unreadable            a text that is no workflow; its problems have places      (nerve.text.source)
├── ExprError, EvalError  an expression that cannot be compiled, or evaluated       (nerve.expr)
├── NotARecord, Lagged …  what is wrong with a fact, a pattern or an observer       (nerve.dataspace)
└── StoreError
    ├── StoreLocked       another process owns the file
    ├── StoreBusy         another connection holds the write lock
    ├── StoreFull         the disk is full
    ├── StoreFailed       the disk or the file failed
    ├── Conflict          somebody else appended first, or the path is settled already
    └── JournalBroken     a record of the journal is not what was written

Suspended (BaseException) the body leaves memory; passes through a user's `except Exception`
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class NerveError(Exception):
    """Anything Nerve itself reports."""


class NodeFailed(NerveError):
    """A node raised an exception."""

    def __init__(self, path: str, error_type: str, error: str) -> None:
        description = error if error.startswith(error_type) else f"{error_type}: {error}"
        super().__init__(f"{path}: {description}")
        self.path, self.error_type, self.error = path, error_type, error


class WorkflowAbsent(NerveError, ValueError):
    """The workflow of a run is not in the session; `modules` are the files that registered it."""

    def __init__(self, workflow: str, run: str, modules: Sequence[str] = ()) -> None:
        super().__init__(f"Workflow '{workflow}' of run '{run}' not found in session")
        self.modules = tuple(modules)


class WorkflowFailed(NerveError):
    """A run failed."""

    def __init__(self, run_id: str, error: str, error_type: str = "") -> None:
        super().__init__(f"run {run_id} failed: {error}" if run_id else error)
        self.run_id, self.error, self.error_type = run_id, error, error_type


class Rejected(NerveError):
    """A person rejected what was asked for; the run ends as cancelled, with this reason."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(reason)
        self.run_id, self.reason = run_id, reason


class RunHeld(NerveError):
    """A run waits for a decision; `reason` says which kind, the message what to do."""

    def __init__(self, run_id: str, reason: str, message: str) -> None:
        super().__init__(f"run {run_id} is held ({reason}): {message}")
        self.run_id, self.reason, self.message = run_id, reason, message


class LimitReached(NerveError):
    """A run reached a limit; the message names it and where to raise it."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class NotJson(NerveError, TypeError):
    """A value that JSON cannot carry; names its type and where it stands."""


class StoreError(NerveError):
    """The store could not do what was asked."""


class StoreInUse(StoreError):
    """Another process owns the file."""

    def __init__(self, file: str, pid: int | None) -> None:
        if pid == os.getpid():
            message = f"{file} is in use by this process: close the session that has it, or use another file."
        else:
            owner = f"process {pid}" if pid else "another process"
            message = f"{file} is in use by {owner}. Stop it, or use another file."
        super().__init__(message)
        self.file, self.pid = file, pid


class StoreBusy(StoreError):
    """Another connection holds the write lock."""


class StoreFull(StoreError):
    """The disk is full. Free some space, then resume the held runs."""


class StoreFailed(StoreError):
    """The disk or the file failed; nothing of the last write counts."""


class Conflict(StoreError):
    """Somebody else appended first, or the path is settled already."""

    def __init__(self, run: str, message: str) -> None:
        super().__init__(f"run {run}: {message}")
        self.run = run


class JournalBroken(StoreError):
    """A record of the journal is not what was written."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(f"run {run}: event {seq} is not what was written. Restore the file from a backup.")
        self.run, self.seq = run, seq


class Suspended(BaseException):
    """The body leaves memory and is rebuilt from the journal later."""
