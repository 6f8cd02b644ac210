"""The methods of arrays, and the functions of `Array`; none changes an array somebody else can see."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nerve.expr import convert
from nerve.expr.access import iterated, relative
from nerve.expr.convert import elements, same_value, strict_equal, to_integer, to_number, to_string
from nerve.expr.errors import Refused
from nerve.expr.frame import Frame
from nerve.expr.library.sorting import in_order
from nerve.expr.library.table import Callback, functions, methods
from nerve.expr.values import UNDEFINED, Array, Value, admit, described, kind_of, truthy

ARRAYS = methods()
ARRAY = functions()


@ARRAYS.add("at")
def at(frame: Frame, array: list[Value], index: Value = UNDEFINED) -> Value:
    place = to_integer(frame, index)
    place = place + len(array) if place < 0 else place
    return admit(array[int(place)]) if 0 <= place < len(array) else UNDEFINED


@ARRAYS.add("concat")
def concat(frame: Frame, array: list[Value], *others: Value) -> Array:
    frame.make_items(len(array))
    found = Array(elements(frame, array))
    for other in others:
        added = elements(frame, other) if kind_of(other) == "array" else [other]
        frame.make_items(len(found) + len(added))
        found += added
    return found


@ARRAYS.add("every", callback=0)
def every(frame: Frame, array: list[Value], test: Callback) -> bool:
    return all(truthy(test(item, index, array)) for index, item in enumerate(elements(frame, array)))


@ARRAYS.add("filter", callback=0)
def filter_(frame: Frame, array: list[Value], test: Callback) -> Array:
    values = elements(frame, array)
    frame.make_items(len(values))
    return Array(item for index, item in enumerate(values) if truthy(test(item, index, array)))


def matches(frame: Frame, array: list[Value], test: Callback, backwards: bool) -> Iterator[tuple[int, Value]]:
    """The places that fulfil a test, from one end or the other."""
    values = elements(frame, array)
    for index in reversed(range(len(values))) if backwards else range(len(values)):
        if truthy(test(values[index], index, array)):
            yield index, values[index]


@ARRAYS.add("find", callback=0)
def find(frame: Frame, array: list[Value], test: Callback) -> Value:
    return next(matches(frame, array, test, False), (-1, UNDEFINED))[1]


@ARRAYS.add("findIndex", callback=0)
def find_index(frame: Frame, array: list[Value], test: Callback) -> int:
    return next(matches(frame, array, test, False), (-1, UNDEFINED))[0]


@ARRAYS.add("findLast", callback=0)
def find_last(frame: Frame, array: list[Value], test: Callback) -> Value:
    return next(matches(frame, array, test, True), (-1, UNDEFINED))[1]


@ARRAYS.add("findLastIndex", callback=0)
def find_last_index(frame: Frame, array: list[Value], test: Callback) -> int:
    return next(matches(frame, array, test, True), (-1, UNDEFINED))[0]


@ARRAYS.add("flat")
def flat(frame: Frame, array: list[Value], depth: Value = UNDEFINED) -> Array:
    levels = 1 if depth is UNDEFINED else to_integer(frame, depth)
    found = Array()
    flatten(frame, array, levels, found, 0)
    return found


def flatten(frame: Frame, array: list[Value], levels: float, found: Array, depth: int) -> None:
    frame.visit(depth)
    for item in elements(frame, array):
        if levels >= 1 and kind_of(item) == "array":
            flatten(frame, item, levels - 1, found, depth + 1)
        else:
            found.append(item)


@ARRAYS.add("flatMap", callback=0)
def flat_map(frame: Frame, array: list[Value], change: Callback) -> Array:
    return flat(frame, map_(frame, array, change))


@ARRAYS.add("includes")
def includes(frame: Frame, array: list[Value], search: Value = UNDEFINED, start: Value = UNDEFINED) -> bool:
    values = elements(frame, array)[relative(to_integer(frame, start), len(array)) :]
    return any(same_value(frame, item, search) for item in values)


@ARRAYS.add("indexOf")
def index_of(frame: Frame, array: list[Value], search: Value = UNDEFINED, start: Value = UNDEFINED) -> int:
    values = elements(frame, array)
    places = range(relative(to_integer(frame, start), len(array)), len(values))
    return next((place for place in places if strict_equal(frame, values[place], search)), -1)


@ARRAYS.add("join")
def join(frame: Frame, array: list[Value], separator: Value = UNDEFINED) -> str:
    between = "," if separator is UNDEFINED else to_string(frame, separator)
    return convert.joined(frame, elements(frame, array), between)


@ARRAYS.add("lastIndexOf")
def last_index_of(frame: Frame, array: list[Value], search: Value = UNDEFINED, *start: Value) -> int:
    values = elements(frame, array)
    last = to_integer(frame, start[0]) if start else len(values) - 1
    last = len(values) + last if last < 0 else min(last, len(values) - 1)
    places = range(int(max(last, -1)), -1, -1)
    return next((place for place in places if strict_equal(frame, values[place], search)), -1)


@ARRAYS.add("map", callback=0)
def map_(frame: Frame, array: list[Value], change: Callback) -> Array:
    values = elements(frame, array)
    frame.make_items(len(values))
    return Array([change(item, index, array) for index, item in enumerate(values)])


@ARRAYS.add("reduce", callback=0)
def reduce(frame: Frame, array: list[Value], step: Callback, *start: Value) -> Value:
    return folded(array, list(enumerate(elements(frame, array))), step, start)


@ARRAYS.add("reduceRight", callback=0)
def reduce_right(frame: Frame, array: list[Value], step: Callback, *start: Value) -> Value:
    return folded(array, list(enumerate(elements(frame, array)))[::-1], step, start)


def folded(
    array: list[Value], items: list[tuple[int, Value]], step: Callback, start: tuple[Value, ...]
) -> Value:
    if not start and not items:
        raise Refused("`reduce` of an empty array needs a value to begin with")
    total = start[0] if start else items[0][1]
    for index, item in items[not start :]:
        total = step(total, item, index, array)
    return total


@ARRAYS.add("reverse")
@ARRAYS.add("toReversed")
def to_reversed(frame: Frame, array: list[Value]) -> Array:
    frame.make_items(len(array))
    return Array(reversed(elements(frame, array)))


@ARRAYS.add("slice")
def slice_(frame: Frame, array: list[Value], start: Value = UNDEFINED, end: Value = UNDEFINED) -> Array:
    first = relative(to_integer(frame, start), len(array))
    last = len(array) if end is UNDEFINED else relative(to_integer(frame, end), len(array))
    frame.make_items(max(0, last - first))
    return Array(elements(frame, array[first:last]))


@ARRAYS.add("some", callback=0)
def some(frame: Frame, array: list[Value], test: Callback) -> bool:
    return any(truthy(test(item, index, array)) for index, item in enumerate(elements(frame, array)))


@ARRAYS.add("sort", callback=0)
@ARRAYS.add("toSorted", callback=0)
def to_sorted(frame: Frame, array: list[Value], compare: Callback | None = None) -> Array:
    frame.make_items(len(array))
    return Array(in_order(frame, elements(frame, array), compare))


@ARRAYS.add("toString")
def to_text(frame: Frame, array: list[Value]) -> str:
    return to_string(frame, array)


@ARRAYS.add("with")
def with_(frame: Frame, array: list[Value], index: Value = UNDEFINED, value: Value = UNDEFINED) -> Array:
    place = to_integer(frame, index)
    place = place + len(array) if place < 0 else place
    if not 0 <= place < len(array):
        raise Refused(f"there is no element {index} in an array of {len(array)}")
    frame.make_items(len(array))
    found = Array(elements(frame, array))
    found[int(place)] = value
    return found


@ARRAY.add("Array.from", callback=1)
def array_from(frame: Frame, source: Value = UNDEFINED, change: Callback | None = None) -> Array:
    values = array_like(frame, source)
    frame.make_items(len(values))
    if change is None:
        return Array(values)
    return Array([change(item, index) for index, item in enumerate(values)])


def array_like(frame: Frame, source: Value) -> list[Value]:
    """The elements of an array or string, or those of an object with a `length`."""
    kind = kind_of(source)
    if kind in ("array", "string"):
        return iterated(frame, source)
    if kind in ("null", "undefined"):
        raise Refused(f"`Array.from` cannot read {described(source)}")
    if kind != "object" or "length" not in source:
        return []
    length = to_number(frame, admit(source["length"]))
    count = 0 if not length > 0 else 2**53 if math.isinf(length) else int(length)
    frame.make_items(count)
    return [admit(source[str(index)]) if str(index) in source else UNDEFINED for index in range(count)]


@ARRAY.add("Array.isArray")
def is_array(frame: Frame, value: Value = UNDEFINED) -> bool:
    return kind_of(value) == "array"


@ARRAY.add("Array.of")
def array_of(frame: Frame, *values: Value) -> Array:
    frame.make_items(len(values))
    return Array(values)
