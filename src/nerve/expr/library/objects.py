"""The functions of `Object`."""

from __future__ import annotations

from nerve.expr import reserved_names
from nerve.expr.coercion import to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.library.table import new_function_table
from nerve.expr.property_access import has_own_property, own_entries, read_property, spread_elements
from nerve.expr.values import UNDEFINED, ArrayValue, ObjectValue, Value, value_kind

OBJECT_FUNCTIONS = new_function_table()


def list_own_entries(frame: Frame, value: Value, cost: int = 1) -> list[tuple[str, Value]]:
    if value is None or value is UNDEFINED:
        raise EvaluationRefused(f"{value_kind(value)} has no keys; write `?? {{}}` if it may be missing")
    own_pairs = list(own_entries(frame, value))
    frame.charge_items(cost * len(own_pairs))
    return own_pairs


def set_object_key(frame: Frame, target: ObjectValue, key: str, value: Value) -> None:
    """Set a key of an object under construction."""
    if key == "__proto__":
        raise EvaluationRefused(reserved_names.forbidden_property_message(key))
    frame.charge_items(len(target) if key not in target and len(target) >= frame.limits.items else 3)
    target[key] = value


@OBJECT_FUNCTIONS.add("Object.assign")
def object_assign(frame: Frame, target: ObjectValue, *sources: Value) -> ObjectValue:
    for source in sources:
        for key, value in own_entries(frame, source):
            set_object_key(frame, target, key, value)
    return target


@OBJECT_FUNCTIONS.add("Object.fromEntries")
def object_from_entries(frame: Frame, pairs: Value = UNDEFINED) -> ObjectValue:
    result = ObjectValue()
    for pair in spread_elements(frame, pairs):
        if value_kind(pair) not in ("array", "object"):
            raise EvaluationRefused("`Object.fromEntries` takes an array of [key, value]")
        set_object_key(
            frame, result, to_string(frame, read_property(frame, pair, "0")), read_property(frame, pair, "1")
        )
    return result


@OBJECT_FUNCTIONS.add("Object.hasOwn")
def object_has_own(frame: Frame, value: Value = UNDEFINED, key: Value = UNDEFINED) -> bool:
    if value is None or value is UNDEFINED:
        raise EvaluationRefused(f"{value_kind(value)} has no keys")
    return has_own_property(frame, value, to_string(frame, key))


OBJECT_FUNCTIONS.add_all(
    {
        "Object.entries": lambda frame, value=UNDEFINED: ArrayValue(
            map(ArrayValue, list_own_entries(frame, value, cost=4))
        ),
        "Object.keys": lambda frame, value=UNDEFINED: ArrayValue(
            key for key, _ in list_own_entries(frame, value)
        ),
        "Object.values": lambda frame, value=UNDEFINED: ArrayValue(
            item for _, item in list_own_entries(frame, value)
        ),
    }
)
