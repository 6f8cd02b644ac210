"""Errors of the api: one family with a code, a sentence and a fix, the same over every transport."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.errors import (
    Conflict,
    JournalBroken,
    NerveError,
    NotJson,
    RunHeld,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreInUse,
    WorkflowAbsent,
)

STATUS_BY_CODE = {
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "not_allowed": 405,
    "timeout": 408,
    "conflict": 409,
    "gone": 410,
    "too_large": 413,
    "unsupported": 415,
    "misdirected": 421,
    "refused": 422,
    "too_many": 429,
    "internal": 500,
    "busy": 503,
    "storage_full": 507,
}
"""Every code, and the HTTP status that says the same."""

DEFAULT_FIXES = {
    "bad_request": "See what is taken: nerve schema openapi",
    "unauthorized": "Send the token as: Authorization: Bearer TOKEN",
    "forbidden": "Use a token that may do it.",
    "not_found": "See what there is: nerve runs, nerve workflow list",
    "not_allowed": "See what is taken: nerve schema openapi",
    "timeout": "Send it again.",
    "conflict": "See how it stands: nerve status RUN",
    "gone": "See how it ended: nerve status RUN",
    "too_large": "Send less, or put it into a file.",
    "unsupported": "Send JSON, with Content-Type: application/json",
    "misdirected": "Use the address that the server printed.",
    "refused": "Correct it and try again.",
    "too_many": "Try again in a second.",
    "internal": "See what the log says.",
    "busy": "Try again in a moment.",
    "storage_full": "Free some space, then try again.",
}
"""What to do, where nothing better is known."""


class ApiError(NerveError):
    """Why a command or a query was not done. `details` are for programs."""

    def __init__(self, code: str, message: str, fix: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.fix, self.details = (
            code,
            message,
            fix or DEFAULT_FIXES[code],
            details or {},
        )

    @property
    def status(self) -> int:
        """The HTTP status of this error."""
        return STATUS_BY_CODE[self.code]

    def to_dict(self) -> dict[str, Any]:
        """The error as it is sent: `code`, `message` and `fix`, with what else belongs to it."""
        fields: dict[str, Any] = {"code": self.code, "message": self.message, "fix": self.fix}
        return fields | ({"details": self.details} if self.details else {})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ApiError:
        """The error that another process told."""
        code = data.get("code", "internal")
        return cls(
            code if code in STATUS_BY_CODE else "internal",
            str(data.get("message", "")),
            str(data.get("fix", "")),
            data.get("details"),
        )


class InvalidRequest(ApiError):
    """What was asked for is not as it is taken; the fix names what is."""

    def __init__(self, code: str, message: str, accepted_names: Iterable[str]) -> None:
        super().__init__(code, message, f"It takes: {', '.join(accepted_names) or 'nothing'}.")


class RunNotFound(ApiError):
    """No run goes by that name."""

    def __init__(self, name: str) -> None:
        super().__init__("not_found", f"Workflow run '{name}' not found", "See the list: nerve runs")


def to_api_error(error: Exception) -> ApiError:
    """Any error as the api tells it; what nobody foresaw is internal, and says only its type."""
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
            return ApiError("refused", str(error), f"Name the file that has its code: {files}")
        case StoreFull():
            return ApiError("storage_full", str(error), "Free some space, then try again.")
        case StoreBusy() | StoreInUse():
            return ApiError("busy", str(error), "Try again in a moment.")
        case Conflict() | RunHeld() | Lagged():
            return ApiError("conflict", str(error))
        case JournalBroken():
            return ApiError("internal", str(error), "See what is damaged: nerve doctor --deep")
        case StoreError():
            return ApiError("internal", str(error))
        case NotARecord() | NotAPattern() | NotJson() | Unavailable():
            return ApiError("refused", str(error))
        case RuntimeError():
            return ApiError("conflict", str(error))
        case ValueError() | TypeError():
            return ApiError("refused", str(error))
        case NerveError():
            return ApiError("refused", str(error))
    return ApiError("internal", f"something went wrong inside ({type(error).__name__}); the log says more")
