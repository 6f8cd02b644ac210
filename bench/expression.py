"""Expressions: a compiled condition beside the same access written in Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Line, at_most, measure_in_turns
from nerve.expr import compile

SOURCE = "context.test.success === true"
CALLS, REPEATS = 4_000, 5
SMALL, LARGE = 10, 100_000


def make_scope(steps: int) -> dict[str, Any]:
    others = {f"step{number}": {"success": True, "output": "done"} for number in range(steps)}
    return {"context": {**others, "test": {"success": True}}}


def evaluate_in_python(scope: dict[str, Any]) -> bool:
    return scope["context"]["test"]["success"] is True


def seconds_per_call(condition: Callable[[dict[str, Any]], Any], scope: dict[str, Any]) -> float:
    """Return the seconds of one evaluation in the fastest repeat."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(CALLS):
            condition(scope)
        best = min(best, time.perf_counter() - began)
    return best / CALLS


def measure(rounds: int, directory: Path) -> list[Line]:
    condition, small, large = compile(SOURCE, names={"context"}), make_scope(SMALL), make_scope(LARGE)
    durations = measure_in_turns(
        rounds,
        lambda: seconds_per_call(condition, small),
        lambda: seconds_per_call(evaluate_in_python, small),
        lambda: seconds_per_call(condition, large),
    )
    ours, bare, grown = ([figure * 1e9 for figure in figures] for figures in durations)
    return [
        make_line(f"{SOURCE}; the same in Python", ours, bare, 10),
        make_line(f"the same in a context of {LARGE:,} steps; of {SMALL}", grown, ours, 1.25),
    ]


def make_line(what: str, ours: list[float], limit: list[float], bound: float) -> Line:
    ratios = [one / other for one, other in zip(ours, limit, strict=True)]
    return Line(
        "expr", what, "ns a call", median(ours), median(limit), median(ratios), at_most(ratios, bound)
    )
