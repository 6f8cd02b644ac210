"""Values as the journal keeps them: JSON text, read back the same way every time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from nerve.core.misfits import DEEP as DEEP
from nerve.core.misfits import NESTING, explained, merges, oversized, whole
from nerve.errors import NotJson

LOOKED_INTO = 1_000_000
"""Characters of a text that is looked into for an object."""
FENCED = re.compile(r"```(?:json)?[ \t]*\n((?:(?!```).)*)```", re.DOTALL)
"""A fenced block that is alone."""


def _encoder(sort_keys: bool) -> Callable[[Any, int], Iterable[str]]:
    """JSONEncoder makes its C encoder anew for every value, which costs more than most values."""
    plain = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=sort_keys
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: plain.encode(value)
    chunks: Callable[[Any, int], Iterable[str]] = make(
        None, plain.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, False
    )
    return chunks


_plain, _sorted = _encoder(sort_keys=False), _encoder(sort_keys=True)
_decode = json.JSONDecoder().raw_decode
_WORDS: dict[type, dict[Any, str]] = {bool: {True: "true", False: "false"}, type(None): {None: "null"}}
_KEPT = frozenset({str, int, bool, type(None)})
EXACT = 2**53
"""Up to here every reader takes a whole number for the same one."""
AROUND = DEEP + 8
"""How deep something that is told of a value may be."""
PREVIEW = 80
"""Characters of a value that a list shows."""
LARGEST = 63 * 1024 * 1024
"""Bytes of JSON that a value may have: so much, with what is told around it, every store takes."""


def first_words(value: Any) -> str:
    """The beginning of a value on one line, by which a person knows it again; "" for nothing.

    No more of a large value is written than that.
    """
    text = value if isinstance(value, str) else ""
    if value is not None and not isinstance(value, str):
        for chunk in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
            text += chunk
            if len(text) > 2 * PREVIEW:
                break
    return " ".join(text[: 2 * PREVIEW].split())[:PREVIEW].rstrip()


def encode(value: Any, canonical: bool = False, deep: int | None = DEEP, largest: int = LARGEST) -> str:
    """JSON text of a value, nested at most `deep`; with `canonical`, the keys of objects are sorted.

    A value that would not be read back as it is raises NotJson. With `deep=None`, for what is only shown,
    it is written as well as it can be.
    """
    kind = type(value)
    if kind is int and -EXACT <= value <= EXACT:
        return str(value)
    if kind in _WORDS:
        return _WORDS[kind][value]
    try:
        text = "".join((_sorted if canonical else _plain)(value, 0))
    except (TypeError, ValueError, RecursionError):
        text = _unsortable(value, deep)
    if deep is None:
        return whole(text)
    objects = text.count("{")
    if objects + text.count("[") > deep and too_deep(value, deep):
        raise NotJson(f"a value nested more than {deep} deep cannot be written as JSON; make it flatter")
    if objects and not canonical and merges(value):
        raise NotJson(explained(value, "two keys of an object become one"))
    size = len(text) if text.isascii() else _bytes_of(text, value)
    if size > largest:
        raise NotJson(oversized(value, size, largest))
    return text


def mended(value: Any) -> Any:
    """A value from outside with marks in the place of half characters."""
    return decode(encode(value, deep=None))


def too_deep(value: Any, deep: int = DEEP) -> bool:
    """Whether a value is nested deeper than can be told of it."""
    level = [value] if isinstance(value, NESTING) else []
    for _ in range(deep):
        if not level:
            return False
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, NESTING)
        ]
    return bool(level)


def read_json(text: str | bytes, deep: int = DEEP) -> Any:
    """The value of a JSON text that somebody gave; ValueError says why it is none that can be kept."""
    try:
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
        )
    except RecursionError:
        value = None
    else:
        if not too_deep(value, deep):
            return value
    raise ValueError(f"it is nested more than {deep} deep")


def object_in(text: str) -> dict[str, Any]:
    """The object of a text that is JSON, alone or as one fenced block; empty for every other text."""
    if len(text) > LOOKED_INTO:
        return {}
    text = text.strip()
    if fenced := FENCED.fullmatch(text):
        text = fenced[1].strip()
    if not text.startswith("{"):
        return {}
    try:
        value = read_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    if (value := float(text)) - value != 0:
        raise ValueError(f"{text if len(text) <= 20 else text[:20] + '…'} is too large for a number")
    return value


def _whole(text: str) -> int:
    _finite(text)
    if inexact(value := int(text)) is not None:
        raise ValueError(beyond(value))
    return value


def inexact(value: Any) -> int | None:
    """A whole number somewhere in a value that not every reader takes for the same one."""
    parts, seen = [value], set[int]()
    while parts:
        part = parts.pop()
        if isinstance(part, int) and abs(part) > EXACT:
            return part
        if isinstance(part, NESTING) and id(part) not in seen:
            seen.add(id(part))
            parts += part.values() if isinstance(part, dict) else part
    return None


def beyond(value: int) -> str:
    """Why a whole number is refused."""
    told = str(value) if abs(value) < 10**40 else "a whole number"
    return f"the number {told} is beyond ±2^53, where not every reader is exact; write it as text"


def check_exact(value: Any) -> None:
    """Raise NotJson for a value from outside with a whole number that not every reader takes for the same."""
    if (number := inexact(value)) is not None:
        raise NotJson(beyond(number))


def is_plain(value: Any) -> bool:
    """Whether decoding its text would give nothing but the value again."""
    return type(value) in _KEPT


def decode(text: str) -> Any:
    """The value of a text that `encode` made."""
    return _decode(text)[0]


def digest(text: str) -> str:
    """A short hash of a canonical text, for comparing inputs."""
    return sha256(text.encode()).hexdigest()[:32]


def _unsortable(value: Any, deep: int | None) -> str:
    """Keys of several types can be sorted only as the text they become."""
    try:
        text = "".join(_sorted(json.loads("".join(_plain(value, 0))), 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(explained(value, error)) from None
    if deep is not None and merges(value):
        raise NotJson(explained(value, "two keys of an object become one"))
    return text


def _bytes_of(text: str, value: Any) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise NotJson(explained(value, error)) from None
