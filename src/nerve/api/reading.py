"""Reading what is asked for, on either side of a wire."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from nerve.api.errors import ApiError
from nerve.api.models import Asked
from nerve.api.operations import Operation

DEEPEST = 64
"""How deep what is asked for may be nested."""


def read(operation: Operation, given: dict[str, Any]) -> Asked:
    """What was asked for, or one clear error about it."""
    check_text(operation, given)
    try:
        # What a query asks for may be written as text, in an address.
        return operation.asks.model_validate(given, strict=operation.changes)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or operation.name
        known = ", ".join(operation.asks.model_fields) or "nothing"
        raise ApiError(
            "too_large"
            if first["type"] == "string_too_long" and first["ctx"]["max_length"] > 256
            else "bad_request",
            f"{operation.name}: {place}: {first['msg'][0].lower()}{first['msg'][1:]}",
            f"It takes: {known}.",
        ) from None


def check_text(operation: Operation, given: dict[str, Any]) -> None:
    """Half a character pair is no text; everything else is looked at where it is used."""
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError("refused", f"{operation.name}: a text in it is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError):
        pass
