"""The functions of `Object`."""

from __future__ import annotations

from nerve.expr import words
from nerve.expr.access import has_own, iterated, own_entries, read
from nerve.expr.convert import to_string
from nerve.expr.errors import Refused
from nerve.expr.frame import Frame
from nerve.expr.library.table import functions
from nerve.expr.values import UNDEFINED, Array, Object, Value, kind_of

OBJECT = functions()


def entries_of(frame: Frame, value: Value) -> list[tuple[str, Value]]:
    if value is None or value is UNDEFINED:
        raise Refused(f"{kind_of(value)} has no keys; write `?? {{}}` where it may be missing")
    return list(own_entries(frame, value))


def put(frame: Frame, target: Object, key: str, value: Value) -> None:
    """Set a key of an object that is being made."""
    if key == "__proto__":
        raise Refused(words.no_property(key))
    frame.make_items(len(target) if key not in target and len(target) >= frame.limits.items else 3)
    target[key] = value


@OBJECT.add("Object.assign")
def assign(frame: Frame, target: Object, *sources: Value) -> Object:
    for source in sources:
        for key, value in own_entries(frame, source):
            put(frame, target, key, value)
    return target


@OBJECT.add("Object.entries")
def entries(frame: Frame, value: Value = UNDEFINED) -> Array:
    found = entries_of(frame, value)
    frame.make_items(4 * len(found))
    return Array(Array(pair) for pair in found)


@OBJECT.add("Object.fromEntries")
def from_entries(frame: Frame, pairs: Value = UNDEFINED) -> Object:
    found = Object()
    for pair in iterated(frame, pairs):
        if kind_of(pair) not in ("array", "object"):
            raise Refused("`Object.fromEntries` takes an array of [key, value]")
        put(frame, found, to_string(frame, read(frame, pair, "0")), read(frame, pair, "1"))
    return found


@OBJECT.add("Object.hasOwn")
def has_own_key(frame: Frame, value: Value = UNDEFINED, key: Value = UNDEFINED) -> bool:
    if value is None or value is UNDEFINED:
        raise Refused(f"{kind_of(value)} has no keys")
    return has_own(frame, value, to_string(frame, key))


@OBJECT.add("Object.keys")
def keys(frame: Frame, value: Value = UNDEFINED) -> Array:
    found = entries_of(frame, value)
    frame.make_items(len(found))
    return Array(key for key, _ in found)


@OBJECT.add("Object.values")
def values(frame: Frame, value: Value = UNDEFINED) -> Array:
    found = entries_of(frame, value)
    frame.make_items(len(found))
    return Array(item for _, item in found)
