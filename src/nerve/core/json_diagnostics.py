"""Diagnostics for values that cannot be encoded as JSON: the offending part and its location."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MAX_JSON_DEPTH = 100
"""The maximum nesting of a value. With the event around it, every JSON reader can still decode it."""
MAX_ERROR_CHARS = 1_000_000
"""Characters of an error message that are stored."""

_STR_ONLY = frozenset({str})
_SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})
CONTAINER_TYPES = (dict, list, tuple)
"""Types of values that contain values."""


def replace_surrogates(text: str) -> str:
    """Return the text with "?" in place of every unpaired surrogate, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_valid_unicode(text: str) -> bool:
    """Return whether a text has no unpaired surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def truncate_error_text(error: str) -> str:
    """Return an error message that can be stored: shortened, without unpaired surrogates."""
    more = len(error) - MAX_ERROR_CHARS
    return replace_surrogates(
        error if more <= 0 else f"{error[:MAX_ERROR_CHARS]}… ({more:,} more characters)"
    )


def has_colliding_keys(value: Any, objects: int) -> bool:
    """Return whether two keys of an object in a value become equal as JSON, such as 1 and "1".

    The value contains at most this number of objects.
    """
    parts: list[Any] = [value] if isinstance(value, CONTAINER_TYPES) else []
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not _STR_ONLY.issuperset(map(type, part)) and find_colliding_key(part) is not None:
                return True
            objects -= 1
            if not objects:
                return False
            part = part.values()
        if not _SCALAR_TYPES.issuperset(map(type, part)):
            parts += [item for item in part if isinstance(item, CONTAINER_TYPES)]
    return False


def find_colliding_key(value: dict[Any, Any]) -> str | None:
    """Return the JSON key that two keys of a dict share, or None."""
    texts = {key for key in value if isinstance(key, str)}
    others = (json_key_text(key) for key in value if not isinstance(key, str)) if texts else ()
    return next((text for text in others if text in texts), None)


def json_key_text(key: Any) -> str:
    """Return the JSON key for the key of a dict."""
    return key if isinstance(key, str) else str(next(iter(json.loads(json.dumps({key: None})))))


def describe_oversized(value: Any, size: int, max_bytes: int) -> str:
    """Return the message for a value that is too large; it names the innermost part that is."""
    location, part, descended = "", value, True
    while descended and isinstance(part, CONTAINER_TYPES):
        descended = False
        for where, item in _located_items(part, location):
            if (item_size := json_size(item)) > max_bytes:
                location, part, size, descended = where, item, item_size, True
                break
    at = f" at {location}" if location else ""
    return truncate_error_text(
        f"a value of type {type(part).__name__}{at} has {size:,} bytes as JSON, more than the limit of"
        f" {max_bytes:,}; store it in a file and pass the file name instead"
    )


def json_size(value: Any) -> int:
    return len(replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode())


def explain_unserializable(value: Any, error: Exception | str) -> str:
    offender = _find_offender(value, "", ())
    if offender is None:
        return f"the value cannot be encoded as JSON: {error}"
    location, kind = offender
    return truncate_error_text(
        f"{kind}{' at ' + location if location else ''} cannot be encoded as JSON; use plain data instead"
    )


def _find_offender(value: Any, location: str, above: tuple[int, ...]) -> tuple[str, str] | None:
    """Return the location and description of the first part that cannot be encoded as JSON."""
    if isinstance(value, CONTAINER_TYPES):
        if id(value) in above:
            return location, "a value that contains itself"
        if len(above) > MAX_JSON_DEPTH:
            return location, f"a value with more than {MAX_JSON_DEPTH} levels of nesting"
        if isinstance(value, dict) and (wrong := _describe_invalid_key(value)) is not None:
            return location, wrong
        for where, item in _located_items(value, location):
            if offender := _find_offender(item, where, (*above, id(value))):
                return offender
        return None
    if isinstance(value, float) and value - value != 0:
        return location, f"the number {value}"
    if isinstance(value, str) and not is_valid_unicode(value):
        return location, "a string with an unpaired surrogate"
    if value is None or isinstance(value, str | int | float):
        return None
    return location, f"a value of type {type(value).__name__}"


def _describe_invalid_key(value: dict[Any, Any]) -> str | None:
    for key in value:
        if not isinstance(key, str | int | float | None):
            return f"a key of type {type(key).__name__}"
        if isinstance(key, float) and key - key != 0:
            return f"the key {key}"
        if isinstance(key, str) and not is_valid_unicode(key):
            return f"the key {key!r} with an unpaired surrogate"
    if (text := find_colliding_key(value)) is not None:
        return f"an object with two keys that both become {text!r}"
    return None


def _located_items(value: Any, location: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{location}.{key}" if location else str(key), item) for key, item in value.items())
    return ((f"{location}[{index}]", item) for index, item in enumerate(value))
