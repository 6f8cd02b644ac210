"""Reading what is asked for, on either side of a wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nerve.api.errors import ApiError, NotTaken
from nerve.api.models import Asked
from nerve.api.operations import Operation

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEEPEST = 64
"""How deep what is asked for may be nested."""
LONG = 256
"""Characters of a text that is more than a name."""
TABLES = ("limits", "overrides")
MOST = 1000
"""Entries that these may have."""
LENGTHS = {"string_too_short": "is empty", "string_too_long": "has more than {max_length} characters"}
WORDS = LENGTHS | {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "greater_than_equal": "is less than {ge}",
    "less_than_equal": "is more than {le}",
}
"""What the validator calls its findings, and how they are told."""
LISTS = {"run": "nerve runs", "workflow": "nerve workflow list"}
"""Where the names of these are found."""


def read(operation: Operation, given: dict[str, Any]) -> Asked:
    """What was asked for, or one clear error about it."""
    check_size(operation, given)
    check_text(operation, given)
    try:
        # What a query asks for may be written as text, in an address.
        return operation.asks.model_validate(given, strict=operation.changes)
    except ValidationError as error:
        raise wrong_with(operation, error.errors(include_url=False)[0]) from None


def wrong_with(operation: Operation, found: ErrorDetails) -> ApiError:
    """What a validator found, as a person says it."""
    place = ".".join(map(str, found["loc"])) or operation.name
    kind, bounds = found["type"], found.get("ctx", {})
    said = WORDS[kind].format(**bounds) if kind in WORDS else f"is not right: {found['msg'].lower()}"
    if kind in LENGTHS and place in LISTS:
        return ApiError("bad_request", f"the name of a {place} {said}", f"See the list: {LISTS[place]}")
    code = "too_large" if kind == "string_too_long" and bounds["max_length"] > LONG else "bad_request"
    return NotTaken(code, f"{operation.name}: '{place}' {said}", operation.asks.model_fields)


def check_size(operation: Operation, given: dict[str, Any]) -> None:
    """Refuse what would be found wrong at thousands of places: the validator looks for all of them."""
    known = operation.asks.model_fields
    if len(given) > len(known):
        unknown = next(name for name in given if name not in known)
        raise NotTaken("bad_request", f"{operation.name}: '{unknown[:LONG]}' is not known", known)
    for name in TABLES:
        if isinstance(table := given.get(name), dict):
            inner = (len(value) for value in table.values() if isinstance(value, dict))
            if len(table) + sum(inner) > MOST:
                raise ApiError("too_large", f"{operation.name}: '{name}' has more than {MOST} entries")


def check_text(operation: Operation, given: dict[str, Any]) -> None:
    """Half a character pair is no text; everything else is looked at where it is used."""
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError("refused", f"{operation.name}: a text in it is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError):
        pass
