"""Sorting as in JavaScript: stable, undefined last, as strings by default."""

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
    check_order(ordered, compare_sign)
    return ordered + missing


def check_order(ordered: list[Value], compare: Callback) -> None:
    """Verify the order: all pairs of a short list, neighbours of a long one."""
    steps = [compare(earlier, later) for earlier, later in pairwise(ordered)]
    levels = [0, *accumulate(abs(step) for step in steps)]
    farthest = 1 if len(ordered) > MAX_ALL_PAIRS_ITEMS else len(ordered)
    for index, later in enumerate(ordered):
        for before in range(max(0, index - farthest), index):
            expected = -1 if levels[before] < levels[index] else 0
            if (compare(ordered[before], later), compare(later, ordered[before])) != (expected, -expected):
                raise EvaluationRefused(
                    "Inconsistent compare function: return a negative number, 0, or a positive number"
                )
