"""The exceptions of Nerve, as one tree.

NerveError
├── NodeFailed            a node raised; has the path, the error type and the message
├── WorkflowFailed        a run failed in another process, or a child run failed
├── Rejected              a person rejected a gate, and the run ends as cancelled
├── RunHeld               a run needs a decision before it can resume
├── WorkflowAbsent        the workflow of a run is not in the session (also a ValueError)
├── LimitReached          a run reached one of its limits
├── NotJson               a value cannot be encoded as JSON
├── InvalidDefinition     a workflow definition has errors, with positions       (nerve.text.source)
├── ExprError, EvalError  an expression cannot be compiled or evaluated          (nerve.expr)
├── NotARecord, Lagged …  errors of facts, patterns and observers                (nerve.dataspace)
└── StoreError
    ├── StoreInUse        another process uses the file
    ├── StoreBusy         another connection holds the write lock
    ├── StoreFull         the disk is full
    ├── StoreFailed       the disk or the file failed
    ├── Conflict          another writer appended first, or the path is already settled
    └── JournalBroken     a record of the journal fails its integrity check

Suspended (BaseException) the body is unloaded; `except Exception` of users does not catch it
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class NerveError(Exception):
    """Base class of all exceptions of Nerve."""


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
        super().__init__(f"Run {run_id} failed: {error}" if run_id else error)
        self.run_id, self.error, self.error_type = run_id, error, error_type


class Rejected(NerveError):
    """A person rejected a gate; the run ends as cancelled, with this reason."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(reason)
        self.run_id, self.reason = run_id, reason


class RunHeld(NerveError):
    """A run waits for a decision; `reason` is its kind, and the message says what to do."""

    def __init__(self, run_id: str, reason: str, message: str) -> None:
        super().__init__(f"Run {run_id} is held ({reason}): {message}")
        self.run_id, self.reason, self.message = run_id, reason, message


class LimitReached(NerveError):
    """A run reached a limit; the message names it and how to raise it."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class NotJson(NerveError, TypeError):
    """A value cannot be encoded as JSON; the message names its type and location."""


class StoreError(NerveError):
    """Base class of the errors of the store."""


class StoreInUse(StoreError):
    """Another process uses the file."""

    def __init__(self, file: str, pid: int | None) -> None:
        if pid == os.getpid():
            message = (
                f"{file} is in use by this process. Close the session that opened it, or use another file."
            )
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
    """The disk or the file failed; the last write had no effect."""


class Conflict(StoreError):
    """Another writer appended first, or the path is already settled."""

    def __init__(self, run: str, message: str) -> None:
        super().__init__(f"Run {run}: {message}")
        self.run = run


class JournalBroken(StoreError):
    """A record of the journal fails its integrity check."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(f"Run {run}: event {seq} is damaged. Restore the file from a backup.")
        self.run, self.seq = run, seq


class Suspended(BaseException):
    """The body is unloaded and later rebuilt from the journal."""
