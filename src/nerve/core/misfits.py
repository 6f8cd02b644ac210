"""Misfits: what of a value JSON cannot carry, where it stands, and how to say so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

DEEP = 100
"""How deep a value may be nested: so much, with what is told around it, every reader can take."""
LONGEST = 1_000_000
"""Characters of an error that are kept."""

_TEXT = frozenset({str})
_FLAT = frozenset({str, int, float, bool, type(None)})
NESTING = (dict, list, tuple)
"""The types of values that have values in them."""


def whole(text: str) -> str:
    """The text, with a mark in the place of every half of a surrogate pair, which no file can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_whole(text: str) -> bool:
    """Whether every file can carry a text."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def readable(error: str) -> str:
    """The text of an error, which is told whatever is in it."""
    more = len(error) - LONGEST
    return whole(error if more <= 0 else f"{error[:LONGEST]}… ({more:,} more characters)")


def merges(value: Any) -> bool:
    """Whether two keys of an object in a value become one, such as 1 and "1"."""
    parts: list[Any] = [value] if isinstance(value, NESTING) else []
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not _TEXT.issuperset(map(type, part)) and merged(part) is not None:
                return True
            part = part.values()
        if not _FLAT.issuperset(map(type, part)):
            parts += [each for each in part if isinstance(each, NESTING)]
    return False


def merged(value: dict[Any, Any]) -> str | None:
    """The text that a second key of an object becomes, if there is one."""
    texts = {key for key in value if isinstance(key, str)}
    others = (key_text(key) for key in value if not isinstance(key, str)) if texts else ()
    return next((text for text in others if text in texts), None)


def key_text(key: Any) -> str:
    """What becomes of the key of an object."""
    return key if isinstance(key, str) else str(next(iter(json.loads(json.dumps({key: None})))))


def oversized(value: Any, size: int, largest: int) -> str:
    """Which part of a value is too large: the innermost that is so by itself."""
    place, part, found = "", value, True
    while found and isinstance(part, NESTING):
        found = False
        for where, item in _items(part, place):
            if (own := size_of(item)) > largest:
                place, part, size, found = where, item, own, True
                break
    at = f" at {place}" if place else ""
    return readable(
        f"a value of type {type(part).__name__}{at} has {size:,} bytes as JSON, more than the limit of"
        f" {largest:,}; keep it in a file and give its name instead"
    )


def size_of(value: Any) -> int:
    return len(whole(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode())


def explained(value: Any, error: Exception | str) -> str:
    found = _offender(value, "", ())
    if found is None:
        return f"value cannot be written as JSON: {error}"
    place, kind = found
    return readable(
        f"{kind}{' at ' + place if place else ''} cannot be written as JSON; use plain data instead"
    )


def _offender(value: Any, place: str, above: tuple[int, ...]) -> tuple[str, str] | None:
    """Where the first thing stands that JSON cannot carry, and what it is."""
    if isinstance(value, NESTING):
        if id(value) in above:
            return place, "a value that contains itself"
        if len(above) > DEEP:
            return place, f"a value nested more than {DEEP} deep"
        if isinstance(value, dict) and (wrong := _wrong_key(value)) is not None:
            return place, wrong
        for where, item in _items(value, place):
            if found := _offender(item, where, (*above, id(value))):
                return found
        return None
    if isinstance(value, float) and value - value != 0:
        return place, f"the number {value}"
    if isinstance(value, str) and not is_whole(value):
        return place, "a text with half of a surrogate pair"
    if value is None or isinstance(value, str | int | float):
        return None
    return place, f"a value of type {type(value).__name__}"


def _wrong_key(value: dict[Any, Any]) -> str | None:
    for key in value:
        if not isinstance(key, str | int | float | None):
            return f"a key of type {type(key).__name__}"
        if isinstance(key, float) and key - key != 0:
            return f"the key {key}"
        if isinstance(key, str) and not is_whole(key):
            return f"the key {key!r} with half of a surrogate pair"
    if (text := merged(value)) is not None:
        return f"an object with two keys that become {text!r}"
    return None


def _items(value: Any, place: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{place}.{key}" if place else str(key), item) for key, item in value.items())
    return ((f"{place}[{index}]", item) for index, item in enumerate(value))
