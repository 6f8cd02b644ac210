"""Convert the result of an evaluation to JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nerve.expr import numbers, utf16
from nerve.expr.frame import Frame
from nerve.expr.values import UNDEFINED, ArrayValue, ObjectValue, Value, value_from_host


def to_json(frame: Frame, value: Value, depth: int = 0) -> Any:
    """Return the value as JSON; host data is returned without a copy."""
    kind = type(value)
    if value is None or value is UNDEFINED:
        return None
    if kind is bool or kind is int:
        return value
    if kind is float:
        return numbers.int_if_safe(value + 0.0) if math.isfinite(value) else None
    if kind is str:
        frame.charge_scan(len(value))
        return utf16.require_whole_characters(value)
    return compound_to_json(frame, value, depth)


def compound_to_json(frame: Frame, value: Value, depth: int) -> Any:
    frame.charge_visit(depth)
    kind = type(value)
    if kind is ArrayValue:
        frame.charge_items(len(value))
        return [to_json(frame, item, depth + 1) for item in value]
    if kind is ObjectValue or (kind is not dict and isinstance(value, Mapping)):
        frame.charge_items(2 * len(value))
        return {
            utf16.require_whole_characters(key): to_json(frame, value_from_host(item), depth + 1)
            for key, item in value.items()
            if item is not UNDEFINED
        }
    return list(value) if kind is tuple else value
