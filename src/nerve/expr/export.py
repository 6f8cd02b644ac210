"""What leaves an evaluation: JSON, and nothing that only JavaScript has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nerve.expr import numbers, utf16
from nerve.expr.frame import Frame
from nerve.expr.values import UNDEFINED, Array, Object, Value, admit


def exported(frame: Frame, value: Value, depth: int = 0) -> Any:
    """The value as JSON; data of the host leaves as it is, without being copied."""
    kind = type(value)
    if value is None or value is UNDEFINED:
        return None
    if kind is bool or kind is int:
        return value
    if kind is float:
        return numbers.settled(value + 0.0) if math.isfinite(value) else None
    if kind is str:
        frame.read_text(len(value))
        return utf16.checked(value)
    return compound(frame, value, depth)


def compound(frame: Frame, value: Value, depth: int) -> Any:
    frame.visit(depth)
    kind = type(value)
    if kind is Array:
        frame.make_items(len(value))
        return [exported(frame, item, depth + 1) for item in value]
    if kind is Object or (kind is not dict and isinstance(value, Mapping)):
        frame.make_items(2 * len(value))
        return {
            utf16.checked(key): exported(frame, admit(item), depth + 1)
            for key, item in value.items()
            if item is not UNDEFINED
        }
    return list(value) if kind is tuple else value
