"""Sorting as JavaScript does it: stable, undefined last, by strings unless told otherwise."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import accumulate, pairwise

from nerve.expr import utf16
from nerve.expr.coercion import to_number, to_string
from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame
from nerve.expr.library.table import Callback
from nerve.expr.values import UNDEFINED, Value

MAX_ALL_PAIRS_ITEMS = 24
"""Up to so many elements every pair is compared to see whether the order is one."""


def sort_values(frame: Frame, values: list[Value], compare: Callback | None) -> list[Value]:
    """The values sorted; a comparison that is no order is refused, for engines would differ."""
    defined = [item for item in values if item is not UNDEFINED]
    missing = [UNDEFINED] * (len(values) - len(defined))
    frame.charge(len(defined) * len(defined).bit_length())
    if compare is None:
        keys = [utf16.utf16_sort_key(frame, to_string(frame, item)) for item in defined]
        indexes = sorted(range(len(defined)), key=keys.__getitem__)
        return [defined[index] for index in indexes] + missing

    def compared(left: Value, right: Value) -> int:
        answer = to_number(frame, compare(left, right))
        if answer != answer:
            raise EvaluationRefused("the comparison gives NaN; compare numbers with numbers")
        return (answer > 0) - (answer < 0)

    ordered = sorted(defined, key=cmp_to_key(compared))
    check_order(ordered, compared)
    return ordered + missing


def check_order(ordered: list[Value], compare: Callback) -> None:
    """Refuse what the order of the pairs contradicts: all pairs of a short list, neighbours of a long one."""
    steps = [compare(earlier, later) for earlier, later in pairwise(ordered)]
    levels = [0, *accumulate(abs(step) for step in steps)]
    farthest = 1 if len(ordered) > MAX_ALL_PAIRS_ITEMS else len(ordered)
    for index, later in enumerate(ordered):
        for before in range(max(0, index - farthest), index):
            expected = -1 if levels[before] < levels[index] else 0
            if (compare(ordered[before], later), compare(later, ordered[before])) != (expected, -expected):
                raise EvaluationRefused("the comparison is no order; return `a - b`, or -1, 0 and 1")
