"""Parse and validate requests, on both sides of a connection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nerve.api.errors import ApiError, InvalidRequest
from nerve.api.models import ApiRequest
from nerve.api.operations import Operation

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_NESTING_DEPTH = 64
"""Maximum nesting depth of a request."""
MAX_NAME_CHARS = 256
"""Maximum characters of a text that is not a name."""
TABLE_FIELDS = ("limits", "overrides", "tags")
MAX_TABLE_ENTRIES = 1000
"""Maximum number of entries in these fields."""
LENGTH_PHRASES = {"string_too_short": "is empty", "string_too_long": "has more than {max_length} characters"}
ERROR_PHRASES = LENGTH_PHRASES | {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "greater_than_equal": "is less than {ge}",
    "less_than_equal": "is more than {le}",
}
"""Problem descriptions by error type of the validator."""
LIST_COMMANDS = {"run": "nerve runs", "workflow": "nerve workflow list"}
"""The commands that list these names."""


def parse_request(operation: Operation, arguments: dict[str, Any]) -> ApiRequest:
    """Return the validated request; raise one ApiError for the first problem."""
    check_request_size(operation, arguments)
    check_request_text(operation, arguments)
    try:
        # A query comes from a URL, so its values may be strings.
        return operation.request_model.model_validate(arguments, strict=operation.is_command)
    except ValidationError as error:
        raise to_bad_request(operation, error.errors(include_url=False)[0]) from None


def to_bad_request(operation: Operation, details: ErrorDetails) -> ApiError:
    """Convert a validation error to a readable ApiError."""
    field = ".".join(map(str, details["loc"])) or operation.name
    kind, bounds = details["type"], details.get("ctx", {})
    problem = (
        ERROR_PHRASES[kind].format(**bounds)
        if kind in ERROR_PHRASES
        else f"is invalid: {details['msg'].lower()}"
    )
    if kind in LENGTH_PHRASES and field in LIST_COMMANDS:
        return ApiError(
            "bad_request", f"The name of the {field} {problem}", f"See the list: {LIST_COMMANDS[field]}"
        )
    code = (
        "too_large" if kind == "string_too_long" and bounds["max_length"] > MAX_NAME_CHARS else "bad_request"
    )
    return InvalidRequest(
        code, f"{operation.name}: '{field}' {problem}", operation.request_model.model_fields
    )


def check_request_size(operation: Operation, arguments: dict[str, Any]) -> None:
    """Reject requests with thousands of errors early, because the validator would collect all of them."""
    known = operation.request_model.model_fields
    if len(arguments) > len(known):
        unknown = next(name for name in arguments if name not in known)
        raise InvalidRequest(
            "bad_request", f"{operation.name}: '{unknown[:MAX_NAME_CHARS]}' is unknown", known
        )
    for name in TABLE_FIELDS:
        if isinstance(table := arguments.get(name), dict):
            inner = (len(value) for value in table.values() if isinstance(value, dict))
            if len(table) + sum(inner) > MAX_TABLE_ENTRIES:
                raise ApiError(
                    "too_large", f"{operation.name}: '{name}' has more than {MAX_TABLE_ENTRIES} entries"
                )


def check_request_text(operation: Operation, arguments: dict[str, Any]) -> None:
    """Reject strings with an unpaired surrogate; everything else is validated where it is used."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError("refused", f"{operation.name}: a string is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError):
        pass


def add_idempotency_key(arguments: dict[str, Any], field: str, key: str | None) -> None:
    """Set the key from the header Idempotency-Key; raise ApiError if the body has another one."""
    if key is not None and arguments.setdefault(field, key) != key:
        raise ApiError("bad_request", "Idempotency-Key differs from the key in the body", "Send one of them.")
