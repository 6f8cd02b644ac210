"""The exceptions of Nerve, as one tree.

NerveError
├── NodeFailed            a node raised; has the path, the error type and the message
├── WorkflowFailed        a run failed in another process, or a child run failed
├── Rejected              a person rejected a gate, and the run ends as cancelled
├── RunHeld               a run needs a decision before it can resume
├── WorkflowAbsent        the workflow of a run is not in the session (also a ValueError)
├── GateNotOpen           an answer names no open gate (also a RuntimeError)
├── VoteRefused           a person may not answer a gate
├── UpdateRejected        the validator of an update rejected its value (also a ValueError)
├── UpdateFailed          the handler of an update raised
├── CleanupRequired       a step was started while the run is stopped, outside `ctx.cleanup()`
├── CompensationFailed    a compensation of a saga failed, after the saga itself
├── LimitReached          a run reached one of its limits
├── NotJson               a value cannot be encoded as JSON
├── InvalidValue          a value is not of the type that an annotation declares (also a ValueError)
├── InvalidRecord         a recorded value is not of the type that the code declares now
├── EngineUnavailable     the cluster of an engine cannot be used
├── InvalidDefinition     a workflow definition has errors, with positions       (nerve.text.source)
├── ExprError, EvalError  an expression cannot be compiled or evaluated          (nerve.expr)
├── NotARecord, Lagged …  errors of facts, patterns and observers                (nerve.dataspace)
└── StoreError
    ├── StoreInUse        another process uses the file
    ├── StoreBusy         another connection holds the write lock
    ├── StoreFull         the disk is full
    ├── DriverMissing     the library for PostgreSQL is not installed
    ├── StoreFailed       the disk, the file or the database server failed
    │   ├── StoreDenied       the user may not write the file
    │   └── StoreUnreachable  the database server does not answer
    ├── OwnershipLost     another process has taken over the session
    ├── Conflict          another writer appended first, or the path is already settled
    ├── PayloadUnreadable a stored payload cannot be decoded
    │   └── KeyMissing    the key that it was encrypted with is not in the key ring
    └── JournalBroken     a record of the journal fails its integrity check
        └── JournalUnreadable  the codec of the session cannot decode a record

Suspended (BaseException) the body is unloaded; `except Exception` of users does not catch it
ContinuedAsNew (BaseException) the body ends and its chain continues; `except Exception` does not catch it
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


class NerveError(Exception):
    """Base class of all exceptions of Nerve."""


class EngineUnavailable(NerveError):
    """The cluster of an engine cannot be reached, or what is needed to use it is not installed."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. {fix}")
        self.problem, self.fix = problem, fix


class NodeFailed(NerveError, KeyError):
    """A node failed: it raised, or the output of its failed Result was read."""

    def __init__(self, path: str, error_type: str, error: str) -> None:
        description = error if error.startswith(error_type) else f"{error_type}: {error}"
        super().__init__(f"{path}: {description}")
        self.path, self.error_type, self.error = path, error_type, error

    def __str__(self) -> str:
        # A KeyError would show the message as a quoted key.
        return str(self.args[0])


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


class VoteRefused(NerveError):
    """A person may not answer, delegate or claim a gate, as its policy says."""


class RunHeld(NerveError):
    """A run waits for a decision; `reason` is its kind, and the message says what to do."""

    def __init__(self, run_id: str, reason: str, message: str) -> None:
        super().__init__(f"Run {run_id} is held ({reason}): {message}")
        self.run_id, self.reason, self.message = run_id, reason, message


class GateNotOpen(NerveError, RuntimeError):
    """An answer names no open gate, or several."""


class UpdateRejected(NerveError, ValueError):
    """The validator of an update rejected its value; nothing is recorded."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Update '{name}' was rejected: {reason}")
        self.name, self.reason = name, reason


class UpdateFailed(NerveError):
    """The handler of an update raised; the run continues."""

    def __init__(self, name: str, error: str, error_type: str) -> None:
        super().__init__(f"Update '{name}' failed: {error_type}: {error}")
        self.name, self.error, self.error_type = name, error, error_type


class CleanupRequired(NerveError, RuntimeError):
    """A step was started while the run is being stopped, outside a cleanup block."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was not started, because the run is being stopped. Use `async with ctx.cleanup():`."
        )
        self.path = path


class CompensationFailed(NerveError):
    """A compensation of a saga failed; `error` is what had failed before, or that the run was stopped."""

    def __init__(self, error: str, failures: str) -> None:
        super().__init__(f"A compensation failed: {failures} (after: {error})")
        self.error, self.failures = error, failures


class LimitReached(NerveError):
    """A run reached a limit; the message names it and how to raise it."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class NotJson(NerveError, TypeError):
    """A value cannot be encoded as JSON; the message names its type and location."""


class InvalidValue(NerveError, ValueError):
    """A value is not of the type that an annotation declares; the message names the field."""


class InvalidRecord(InvalidValue):
    """A recorded value is not of the type that the code declares now; the run is held."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: the journal has a value of another type. {problem}")
        self.path = path


class StoreError(NerveError):
    """Base class of the errors of the store; `fix` says what to do where the message does not."""

    fix = "To diagnose: nerve doctor"


class StoreInUse(StoreError):
    """Another process uses the file, or owns the session in PostgreSQL."""

    def __init__(self, file: str, pid: int | None, owner: str | None = None) -> None:
        """`owner` names the process if its id is not one of this machine."""
        if pid is not None and pid == os.getpid():
            message = (
                f"{file} is in use by this process. Close the session that opened it, or use another store."
            )
        else:
            owner = owner or (f"process {pid}" if pid else "another process")
            message = f"{file} is in use by {owner}. Stop it, or use another store."
        super().__init__(message)
        self.file, self.pid, self.owner = file, pid, owner or ""


class StoreBusy(StoreError):
    """Another connection holds the write lock."""


class StoreFull(StoreError):
    """The disk is full. Free some space, then resume the held runs."""

    fix = "Free some space, then try again."


class DriverMissing(StoreError):
    """The library for a store in PostgreSQL cannot be imported."""

    fix = ""


class StoreFailed(StoreError):
    """The disk, the file or the database server failed; the last write had no effect."""


class StoreDenied(StoreFailed):
    """The operating system does not let this user write the file."""

    fix = "Change its permissions, or use another store."


class StoreUnreachable(StoreFailed):
    """The database server cannot be reached, or does not answer."""


class OwnershipLost(StoreError):
    """Another process has taken over the session in PostgreSQL; this one cannot write to it any more."""


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


class JournalUnreadable(JournalBroken):
    """The codec of the session cannot decode a record of the journal; `reason` says why."""

    def __init__(self, run: str, seq: int, reason: str) -> None:
        super().__init__(run, seq)
        self.args = (f"Run {run}: event {seq} cannot be decoded. {reason}",)
        self.reason = reason


class PayloadUnreadable(StoreError):
    """A stored payload cannot be decoded; the message says why and what to do."""


class KeyMissing(PayloadUnreadable):
    """The key that a payload was encrypted with is not in the key ring."""


class Suspended(BaseException):
    """The body is unloaded and later rebuilt from the journal."""


class ContinuedAsNew(BaseException):
    """The body ends, and the next run of its chain starts with this input and these parameters."""

    def __init__(self, input: Any, params: dict[str, Any]) -> None:
        super().__init__("the run continues as new")
        self.input, self.params = input, params
