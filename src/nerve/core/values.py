"""Values as the journal keeps them: JSON text, read back the same way every time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from nerve.errors import NotJson


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
_KEPT = frozenset({int, bool, type(None)})
DEEP = 100
"""How deep a value may be nested: so much, with what is told around it, every reader can take."""
EXACT = 2**53
"""Up to here every reader takes a whole number for the same one."""
AROUND = DEEP + 8
"""How deep something that is told of a value may be."""


def encode(value: Any, canonical: bool = False, deep: int | None = DEEP) -> str:
    """JSON text of a value, nested at most `deep`; with `canonical`, the keys of objects are sorted."""
    try:
        text = "".join((_sorted if canonical else _plain)(value, 0))
    except (TypeError, ValueError, RecursionError):
        text = _unsortable(value)
    if deep is not None and text.count("[") + text.count("{") > deep and too_deep(value, deep):
        raise NotJson(f"a value nested more than {deep} deep cannot be written as JSON; make it flatter")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def too_deep(value: Any, deep: int = DEEP) -> bool:
    """Whether a value is nested deeper than can be told of it."""
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(deep):
        if not level:
            return False
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list | tuple)
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
        if isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))
            parts += part.values() if isinstance(part, dict) else part
    return None


def beyond(value: int) -> str:
    """Why a whole number is refused."""
    told = str(value) if abs(value) < 10**40 else "a whole number"
    return f"the number {told} is beyond ±2^53, where not every reader is exact; write it as text"


def is_plain(value: Any) -> bool:
    """Whether decoding its text would give nothing but the value again."""
    kind = type(value)
    return kind in _KEPT or (kind is str and value.isascii())


def decode(text: str) -> Any:
    """The value of a text that `encode` made."""
    return _decode(text)[0]


def digest(text: str) -> str:
    """A short hash of a canonical text, for comparing inputs."""
    return sha256(text.encode()).hexdigest()[:32]


def _unsortable(value: Any) -> str:
    """Keys of several types can be sorted only as the text they become."""
    try:
        return "".join(_sorted(json.loads("".join(_plain(value, 0))), 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(_explain(value, error)) from None


def _explain(value: Any, error: Exception) -> str:
    found = _offender(value, "", ())
    if found is None:
        return f"value cannot be written as JSON: {error}"
    place, kind = found
    return f"{kind}{' at ' + place if place else ''} cannot be written as JSON; return plain data instead"


def _offender(value: Any, place: str, above: tuple[int, ...]) -> tuple[str, str] | None:
    """Where the first thing stands that JSON cannot carry, and what it is."""
    if isinstance(value, dict | list | tuple):
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
    if value is None or isinstance(value, str | int | float):
        return None
    return place, f"a value of type {type(value).__name__}"


def _wrong_key(value: dict[Any, Any]) -> str | None:
    for key in value:
        if not isinstance(key, str | int | float | None):
            return f"a key of type {type(key).__name__}"
        if isinstance(key, float) and key - key != 0:
            return f"the key {key}"
    return None


def _items(value: Any, place: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{place}.{key}" if place else str(key), item) for key, item in value.items())
    return ((f"{place}[{index}]", item) for index, item in enumerate(value))
