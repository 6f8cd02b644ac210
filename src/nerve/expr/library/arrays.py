"""The methods of arrays and the functions of `Array`; none changes an existing array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cmp_to_key
from itertools import accumulate, pairwise

from nerve.expr import coercion, utf16
from nerve.expr.coercion import array_elements, same_value, strict_equal, to_integer, to_number, to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.library.table import Callback, new_function_table, new_method_table
from nerve.expr.property_access import clamp_index, slice_bounds, spread_elements
from nerve.expr.values import (
    UNDEFINED,
    ArrayValue,
    Value,
    describe_kind,
    is_truthy,
    value_from_host,
    value_kind,
)

MAX_ALL_PAIRS_ITEMS = 24
"""Up to this length, every pair is compared to verify the order."""


def sort_values(frame: Frame, values: list[Value], compare: Callback | None) -> list[Value]:
    """Return the sorted values; an inconsistent compare function raises, because engines would differ."""
    defined = [item for item in values if item is not UNDEFINED]
    missing = [UNDEFINED] * (len(values) - len(defined))
    frame.charge(len(defined) * len(defined).bit_length())
    if compare is None:
        keys = [utf16.utf16_sort_key(frame, to_string(frame, item)) for item in defined]
        indexes = sorted(range(len(defined)), key=keys.__getitem__)
        return [defined[index] for index in indexes] + missing

    def compare_sign(left: Value, right: Value) -> int:
        answer = to_number(frame, compare(left, right))
        if answer != answer:
            raise EvaluationRefused("The compare function returned NaN; compare numbers with numbers")
        return (answer > 0) - (answer < 0)

    ordered = sorted(defined, key=cmp_to_key(compare_sign))
    # Verify the order: all pairs of a short list, neighbours of a long one.
    steps = [compare_sign(earlier, later) for earlier, later in pairwise(ordered)]
    levels = [0, *accumulate(abs(step) for step in steps)]
    farthest = 1 if len(ordered) > MAX_ALL_PAIRS_ITEMS else len(ordered)
    for index, later in enumerate(ordered):
        for before in range(max(0, index - farthest), index):
            expected = -1 if levels[before] < levels[index] else 0
            if (compare_sign(ordered[before], later), compare_sign(later, ordered[before])) != (
                expected,
                -expected,
            ):
                raise EvaluationRefused(
                    "Inconsistent compare function: return a negative number, 0, or a positive number"
                )
    return ordered + missing


ARRAY_METHODS = new_method_table()
ARRAY_FUNCTIONS = new_function_table()


@ARRAY_METHODS.add("at")
def array_at(frame: Frame, array: list[Value], index: Value = UNDEFINED) -> Value:
    position = to_integer(frame, index)
    position = position + len(array) if position < 0 else position
    return value_from_host(array[int(position)]) if 0 <= position < len(array) else UNDEFINED


@ARRAY_METHODS.add("concat")
def array_concat(frame: Frame, array: list[Value], *others: Value) -> ArrayValue:
    frame.charge_items(len(array))
    result = ArrayValue(array_elements(frame, array))
    for other in others:
        added = array_elements(frame, other) if value_kind(other) == "array" else [other]
        frame.charge_items(len(result) + len(added))
        result += added
    return result


@ARRAY_METHODS.add("filter", callback=0)
def array_filter(frame: Frame, array: list[Value], test: Callback) -> ArrayValue:
    values = array_elements(frame, array)
    frame.charge_items(len(values))
    return ArrayValue(item for index, item in enumerate(values) if is_truthy(test(item, index, array)))


def find_matches(
    frame: Frame, array: list[Value], test: Callback, backwards: bool
) -> Iterator[tuple[int, Value]]:
    """Yield the index and value of elements that pass a test, from either end."""
    values = array_elements(frame, array)
    for index in reversed(range(len(values))) if backwards else range(len(values)):
        if is_truthy(test(values[index], index, array)):
            yield index, values[index]


@ARRAY_METHODS.add("flat")
def array_flat(frame: Frame, array: list[Value], depth: Value = UNDEFINED) -> ArrayValue:
    levels = 1 if depth is UNDEFINED else to_integer(frame, depth)
    result = ArrayValue()
    flatten_into(frame, array, levels, result, 0)
    return result


def flatten_into(frame: Frame, array: list[Value], levels: float, result: ArrayValue, depth: int) -> None:
    frame.charge_visit(depth)
    for item in array_elements(frame, array):
        if levels >= 1 and value_kind(item) == "array":
            flatten_into(frame, item, levels - 1, result, depth + 1)
        else:
            result.append(item)


@ARRAY_METHODS.add("includes")
def array_includes(
    frame: Frame, array: list[Value], search: Value = UNDEFINED, start: Value = UNDEFINED
) -> bool:
    values = array_elements(frame, array)[clamp_index(to_integer(frame, start), len(array)) :]
    return any(same_value(frame, item, search) for item in values)


@ARRAY_METHODS.add("indexOf")
def array_index_of(
    frame: Frame, array: list[Value], search: Value = UNDEFINED, start: Value = UNDEFINED
) -> int:
    values = array_elements(frame, array)
    positions = range(clamp_index(to_integer(frame, start), len(array)), len(values))
    return next((position for position in positions if strict_equal(frame, values[position], search)), -1)


@ARRAY_METHODS.add("join")
def array_join(frame: Frame, array: list[Value], separator: Value = UNDEFINED) -> str:
    between = "," if separator is UNDEFINED else to_string(frame, separator)
    return coercion.join_elements(frame, array_elements(frame, array), between)


@ARRAY_METHODS.add("lastIndexOf")
def array_last_index_of(frame: Frame, array: list[Value], search: Value = UNDEFINED, *start: Value) -> int:
    values = array_elements(frame, array)
    last = to_integer(frame, start[0]) if start else len(values) - 1
    last = len(values) + last if last < 0 else min(last, len(values) - 1)
    positions = range(int(max(last, -1)), -1, -1)
    return next((position for position in positions if strict_equal(frame, values[position], search)), -1)


@ARRAY_METHODS.add("map", callback=0)
def array_map(frame: Frame, array: list[Value], change: Callback) -> ArrayValue:
    values = array_elements(frame, array)
    frame.charge_items(len(values))
    return ArrayValue([change(item, index, array) for index, item in enumerate(values)])


def fold_items(
    array: list[Value], items: list[tuple[int, Value]], step: Callback, start: tuple[Value, ...]
) -> Value:
    if not start and not items:
        raise EvaluationRefused("`reduce` of an empty array needs an initial value")
    total = start[0] if start else items[0][1]
    for index, item in items[not start :]:
        total = step(total, item, index, array)
    return total


@ARRAY_METHODS.add("reverse")
@ARRAY_METHODS.add("toReversed")
def array_to_reversed(frame: Frame, array: list[Value]) -> ArrayValue:
    frame.charge_items(len(array))
    return ArrayValue(reversed(array_elements(frame, array)))


@ARRAY_METHODS.add("slice")
def array_slice(
    frame: Frame, array: list[Value], start: Value = UNDEFINED, end: Value = UNDEFINED
) -> ArrayValue:
    first, last = slice_bounds(frame, start, end, len(array), clamp_index)
    frame.charge_items(max(0, last - first))
    return ArrayValue(array_elements(frame, array[first:last]))


@ARRAY_METHODS.add("sort", callback=0)
@ARRAY_METHODS.add("toSorted", callback=0)
def array_to_sorted(frame: Frame, array: list[Value], compare: Callback | None = None) -> ArrayValue:
    frame.charge_items(len(array))
    return ArrayValue(sort_values(frame, array_elements(frame, array), compare))


@ARRAY_METHODS.add("with")
def array_with(
    frame: Frame, array: list[Value], index: Value = UNDEFINED, value: Value = UNDEFINED
) -> ArrayValue:
    position = to_integer(frame, index)
    position = position + len(array) if position < 0 else position
    if not 0 <= position < len(array):
        raise EvaluationRefused(f"Index {index} is out of range for an array of {len(array)} elements")
    frame.charge_items(len(array))
    result = ArrayValue(array_elements(frame, array))
    result[int(position)] = value
    return result


@ARRAY_FUNCTIONS.add("Array.from", callback=1)
def array_from(frame: Frame, source: Value = UNDEFINED, change: Callback | None = None) -> ArrayValue:
    values = array_like_elements(frame, source)
    frame.charge_items(len(values))
    if change is None:
        return ArrayValue(values)
    return ArrayValue([change(item, index) for index, item in enumerate(values)])


def array_like_elements(frame: Frame, source: Value) -> list[Value]:
    """Return the elements of an array, a string, or an object with a `length`."""
    kind = value_kind(source)
    if kind in ("array", "string"):
        return spread_elements(frame, source)
    if kind in ("null", "undefined"):
        raise EvaluationRefused(f"`Array.from` cannot read {describe_kind(source)}")
    if kind != "object" or "length" not in source:
        return []
    length = to_number(frame, value_from_host(source["length"]))
    count = 0 if not length > 0 else 2**53 if math.isinf(length) else int(length)
    frame.charge_items(count)
    return [
        value_from_host(source[str(index)]) if str(index) in source else UNDEFINED for index in range(count)
    ]


@ARRAY_FUNCTIONS.add("Array.of")
def array_of(frame: Frame, *values: Value) -> ArrayValue:
    frame.charge_items(len(values))
    return ArrayValue(values)


def first_match(
    frame: Frame, array: list[Value], test: Callback, backwards: bool = False
) -> tuple[int, Value]:
    """Return the index and value of the first element that passes a test; -1 and undefined without one."""
    return next(find_matches(frame, array, test, backwards), (-1, UNDEFINED))


ARRAY_METHODS.add_all(
    {
        "every": lambda frame, array, test: all(
            is_truthy(test(item, index, array)) for index, item in enumerate(array_elements(frame, array))
        ),
        "some": lambda frame, array, test: first_match(frame, array, test)[0] >= 0,
        "find": lambda frame, array, test: first_match(frame, array, test)[1],
        "findIndex": lambda frame, array, test: first_match(frame, array, test)[0],
        "findLast": lambda frame, array, test: first_match(frame, array, test, True)[1],
        "findLastIndex": lambda frame, array, test: first_match(frame, array, test, True)[0],
        "flatMap": lambda frame, array, change: array_flat(frame, array_map(frame, array, change)),
        "reduce": lambda frame, array, step, *start: fold_items(
            array, list(enumerate(array_elements(frame, array))), step, start
        ),
        "reduceRight": lambda frame, array, step, *start: fold_items(
            array, list(enumerate(array_elements(frame, array)))[::-1], step, start
        ),
    },
    callback=0,
)
ARRAY_METHODS.add_all({"toString": to_string})
ARRAY_FUNCTIONS.add_all({"Array.isArray": lambda frame, value=UNDEFINED: value_kind(value) == "array"})
