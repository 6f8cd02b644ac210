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
DEEP = 64
"""How far down a value that cannot be written is searched for the reason."""


def encode(value: Any, canonical: bool = False) -> str:
    """JSON text of a value; with `canonical`, the keys of objects are sorted."""
    try:
        text = "".join((_sorted if canonical else _plain)(value, 0))
    except (TypeError, ValueError, RecursionError):
        text = _unsortable(value)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


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
