"""Errors of the API: a code, a message and a fix, the same over every transport."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.errors import (
    Conflict,
    EngineUnavailable,
    JournalBroken,
    JournalUnreadable,
    NerveError,
    NotJson,
    RunHeld,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreUnreachable,
    VoteRefused,
    WorkflowAbsent,
)
from nerve.text import join_problem_and_fix

ERROR_CODES = {
    "bad_request": (400, "See the accepted fields: nerve schema openapi"),
    "unauthorized": (401, "Send the token as: Authorization: Bearer TOKEN"),
    "forbidden": (403, "Use a token with the required scope."),
    "not_found": (404, "See the lists: nerve runs, nerve workflow list"),
    "not_allowed": (405, "See the accepted methods: nerve schema openapi"),
    "timeout": (408, "Send the request again."),
    "conflict": (409, "See the state of the run: nerve status RUN"),
    "gone": (410, "See the outcome of the run: nerve status RUN"),
    "too_large": (413, "Send less, or put it into a file."),
    "unsupported": (415, "Send JSON, with Content-Type: application/json"),
    "misdirected": (421, "Use the address that the server printed."),
    "refused": (422, "Correct it and try again."),
    "too_many": (429, "Try again in a second."),
    "internal": (500, "See the log of the server."),
    "busy": (503, "Try again in a moment."),
    "storage_full": (507, "Free some space, then try again."),
}
"""HTTP status by error code, and the fix if the error has none of its own."""

STATUS_BY_CODE = {code: status for code, (status, _) in ERROR_CODES.items()}
DEFAULT_FIXES = {code: fix for code, (_, fix) in ERROR_CODES.items()}


DATABASE_FIX = "Check its server: nerve doctor"
"""What to do when a database does not answer."""


class ApiError(NerveError):
    """Why a command or query failed. `details` are for programs."""

    def __init__(self, code: str, message: str, fix: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.fix, self.details = fix or DEFAULT_FIXES[code], details or {}

    @property
    def status(self) -> int:
        """The HTTP status of this error."""
        return STATUS_BY_CODE[self.code]

    @property
    def sentences(self) -> str:
        """The message and the fix, for people."""
        return join_problem_and_fix(self.message, self.fix)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as sent: `code`, `message`, `fix`, and `details` if there are any."""
        fields: dict[str, Any] = {"code": self.code, "message": self.message, "fix": self.fix}
        return fields | ({"details": self.details} if self.details else {})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ApiError:
        """Return the error that another process sent."""
        code = data.get("code", "internal")
        return cls(
            code if code in STATUS_BY_CODE else "internal",
            str(data.get("message", "")),
            str(data.get("fix", "")),
            data.get("details"),
        )


class InvalidRequest(ApiError):
    """The request is invalid; the fix lists the accepted fields."""

    def __init__(self, code: str, message: str, accepted_names: Iterable[str]) -> None:
        super().__init__(code, message, f"Accepted fields: {', '.join(accepted_names) or 'none'}.")


class RunNotFound(ApiError):
    """No run has that name."""

    def __init__(self, name: str) -> None:
        super().__init__("not_found", f"Workflow run '{name}' not found", "See the list: nerve runs")


def to_api_error(error: Exception) -> ApiError:
    """Convert any error to an ApiError; an unexpected one is internal and shows only its type."""
    from nerve.agents.provider import Unavailable
    from nerve.dataspace import Lagged, NotAPattern, NotARecord
    from nerve.text.source import InvalidDefinition

    match error:
        case ApiError():
            return error
        case InvalidDefinition():
            return ApiError(
                "refused", str(error), details={"problems": [problem.to_dict() for problem in error.problems]}
            )
        case WorkflowAbsent():
            files = " ".join(f"--with {file}" for file in error.modules or ["FILE"])
            return ApiError("refused", str(error), f"Name the file with its code: {files}")
        case StoreFull():
            return ApiError("storage_full", str(error), error.fix)
        case StoreBusy() | StoreInUse():
            return ApiError("busy", str(error), "Try again in a moment.")
        case StoreUnreachable():
            return ApiError("busy", str(error), DATABASE_FIX)
        case EngineUnavailable():
            return ApiError("busy", error.problem, f"{error.fix}.")
        case VoteRefused():
            return ApiError("forbidden", str(error), "See who may answer: nerve gates")
        case Conflict() | RunHeld() | Lagged():
            return ApiError("conflict", str(error))
        case JournalUnreadable():
            return ApiError("internal", str(error))
        case JournalBroken():
            return ApiError("internal", str(error), "See the damage: nerve doctor --deep")
        case StoreError():
            return ApiError("internal", str(error), error.fix)
        case NotARecord() | NotAPattern() | NotJson() | Unavailable():
            return ApiError("refused", str(error))
        case RuntimeError():
            return ApiError("conflict", str(error))
        case ValueError() | TypeError():
            return ApiError("refused", str(error))
        case NerveError():
            return ApiError("refused", str(error))
    return ApiError("internal", f"Internal error ({type(error).__name__}); see the log for details")
