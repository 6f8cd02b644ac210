"""Misfits: what of a value JSON cannot carry, where it stands, and how to say so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MAX_JSON_DEPTH = 100
"""How deep a value may be nested: so much, with what is told around it, every reader can take."""
MAX_ERROR_CHARS = 1_000_000
"""Characters of an error that are kept."""

_STR_ONLY = frozenset({str})
_SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})
CONTAINER_TYPES = (dict, list, tuple)
"""The types of values that have values in them."""


def replace_surrogates(text: str) -> str:
    """The text, with a mark in the place of every half of a surrogate pair, which no file can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_valid_unicode(text: str) -> bool:
    """Whether every file can carry a text."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def truncate_error_text(error: str) -> str:
    """The text of an error, which is told whatever is in it."""
    more = len(error) - MAX_ERROR_CHARS
    return replace_surrogates(
        error if more <= 0 else f"{error[:MAX_ERROR_CHARS]}… ({more:,} more characters)"
    )


def has_colliding_keys(value: Any) -> bool:
    """Whether two keys of an object in a value become one, such as 1 and "1"."""
    parts: list[Any] = [value] if isinstance(value, CONTAINER_TYPES) else []
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not _STR_ONLY.issuperset(map(type, part)) and find_colliding_key(part) is not None:
                return True
            part = part.values()
        if not _SCALAR_TYPES.issuperset(map(type, part)):
            parts += [item for item in part if isinstance(item, CONTAINER_TYPES)]
    return False


def find_colliding_key(value: dict[Any, Any]) -> str | None:
    """The text that a second key of an object becomes, if there is one."""
    texts = {key for key in value if isinstance(key, str)}
    others = (json_key_text(key) for key in value if not isinstance(key, str)) if texts else ()
    return next((text for text in others if text in texts), None)


def json_key_text(key: Any) -> str:
    """What becomes of the key of an object."""
    return key if isinstance(key, str) else str(next(iter(json.loads(json.dumps({key: None})))))


def describe_oversized(value: Any, size: int, max_bytes: int) -> str:
    """Which part of a value is too large: the innermost that is so by itself."""
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
        f" {max_bytes:,}; keep it in a file and give its name instead"
    )


def json_size(value: Any) -> int:
    return len(replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode())


def explain_unserializable(value: Any, error: Exception | str) -> str:
    offender = _find_offender(value, "", ())
    if offender is None:
        return f"value cannot be written as JSON: {error}"
    location, kind = offender
    return truncate_error_text(
        f"{kind}{' at ' + location if location else ''} cannot be written as JSON; use plain data instead"
    )


def _find_offender(value: Any, location: str, above: tuple[int, ...]) -> tuple[str, str] | None:
    """Where the first thing stands that JSON cannot carry, and what it is."""
    if isinstance(value, CONTAINER_TYPES):
        if id(value) in above:
            return location, "a value that contains itself"
        if len(above) > MAX_JSON_DEPTH:
            return location, f"a value nested more than {MAX_JSON_DEPTH} deep"
        if isinstance(value, dict) and (wrong := _describe_invalid_key(value)) is not None:
            return location, wrong
        for where, item in _located_items(value, location):
            if offender := _find_offender(item, where, (*above, id(value))):
                return offender
        return None
    if isinstance(value, float) and value - value != 0:
        return location, f"the number {value}"
    if isinstance(value, str) and not is_valid_unicode(value):
        return location, "a text with half of a surrogate pair"
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
            return f"the key {key!r} with half of a surrogate pair"
    if (text := find_colliding_key(value)) is not None:
        return f"an object with two keys that become {text!r}"
    return None


def _located_items(value: Any, location: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{location}.{key}" if location else str(key), item) for key, item in value.items())
    return ((f"{location}[{index}]", item) for index, item in enumerate(value))
