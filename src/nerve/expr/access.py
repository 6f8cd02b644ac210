"""What can be read from a value: the keys of its data, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from nerve.expr import numbers, utf16, words
from nerve.expr.convert import elements, to_string
from nerve.expr.errors import Refused
from nerve.expr.frame import Frame
from nerve.expr.values import UNDEFINED, Value, admit, array_index, described, keys_in_order, kind_of


def read(frame: Frame, base: Value, key: str) -> Value:
    """The property `key`, or UNDEFINED."""
    if key in words.NEVER_READ:
        raise Refused(words.no_property(key))
    kind = kind_of(base)
    if kind == "object":
        return admit(base[key]) if key in base else absent(base, key)
    if kind == "null" or kind == "undefined":
        raise Refused(f"cannot read `{key}` of {kind}; write `?.` where it may be missing")
    if kind == "array" or kind == "string":
        if key == "length":
            return size(frame, base)
        index = array_index(key)
        if index is not None:
            return at(frame, base, index)
    return absent(base, key)


def read_index(frame: Frame, base: Value, key: Value) -> Value:
    """What `base[key]` says."""
    if type(key) is int and type(base) is not dict:
        kind = kind_of(base)
        if kind == "array" or kind == "string":
            return at(frame, base, key) if key >= 0 else UNDEFINED
    if base is None or base is UNDEFINED:
        raise Refused(f"cannot read a property of {kind_of(base)}; write `?.[` where it may be missing")
    return read(frame, base, to_string(frame, key))


def size(frame: Frame, base: Value) -> int:
    return utf16.length(frame, base) if type(base) is str else len(base)


def at(frame: Frame, base: Value, index: int) -> Value:
    """The element of an array or the unit of a string, or UNDEFINED."""
    if type(base) is str:
        text = utf16.units(frame, base)
        return text[index] if index < len(text) else UNDEFINED
    return admit(base[index]) if index < len(base) else UNDEFINED


def absent(base: Value, key: str) -> Value:
    """UNDEFINED, unless JavaScript would find something that is not data."""
    if key in (words.OF_OBJECTS if kind_of(base) == "object" else words.OF_OTHERS):
        raise Refused(f"{described(base)} has no key `{key}`; methods can only be called")
    return UNDEFINED


def has(frame: Frame, base: Value, key: Value) -> bool:
    """What `key in base` says."""
    kind = kind_of(base)
    if kind not in ("object", "array"):
        raise Refused(f"`in` looks into objects and arrays, not into {described(base)}")
    name = to_string(frame, key)
    if has_own(frame, base, name):
        return True
    if name in words.NEVER_READ:
        raise Refused(words.no_property(name))
    absent(base, name)
    return False


def has_own(frame: Frame, base: Value, name: str) -> bool:
    """Whether `name` is a key of the data itself."""
    kind = kind_of(base)
    if kind == "object":
        return name in base
    if kind in ("array", "string"):
        index = array_index(name)
        return name == "length" or (index is not None and index < size(frame, base))
    return False


def own_entries(frame: Frame, base: Value) -> Iterator[tuple[str, Value]]:
    """The keys and values that spreading, `Object.entries` and the like see, in JavaScript's order."""
    kind = kind_of(base)
    if kind == "object":
        frame.spend(4 + 2 * len(base))
        for key in keys_in_order(base):
            yield key, admit(base[key])
    elif kind == "array":
        yield from enumerated(elements(frame, base))
    elif kind == "string":
        text = utf16.units(frame, base)
        frame.make_items(len(text))
        yield from enumerated(list(text))


def enumerated(values: list[Value]) -> Iterator[tuple[str, Value]]:
    for index, item in enumerate(values):
        yield str(index), item


def iterated(frame: Frame, base: Value) -> list[Value]:
    """What `...base` in an array or a call gives."""
    kind = kind_of(base)
    if kind == "array":
        return elements(frame, base)
    if kind == "string":
        frame.make_items(len(base))
        return list(base)
    raise Refused(f"{described(base)} cannot be spread; arrays and strings can")


def relative(position: numbers.Number, length: int) -> int:
    """An index that counts from the end when it is negative, kept within the length."""
    return int(max(length + position, 0)) if position < 0 else int(min(position, length))
