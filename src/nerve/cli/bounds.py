"""Limits as they are given at the command line: of a run, or of one of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.cli.usage import UsageError
from nerve.core.limits import raised

FORM = "write NAME=NUMBER, or /STEP:NAME=NUMBER for one step"


def bounds(given: Iterable[str]) -> dict[str, Any]:
    """`tokens=5000` and `/dev:cost=2` as the api takes them."""
    found: dict[str, Any] = {}
    for text in given:
        what, equals, number = text.partition("=")
        step, _, name = what.rpartition(":")
        if not equals or not name or (step and not step.startswith("/")):
            raise UsageError(f"--limit {text}: {FORM}.")
        (found.setdefault(step, {}) if step else found)[name] = number_of(text, number)
    try:
        raised(found)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--limit: {error}") from None
    return found


def of_run(given: Iterable[str]) -> dict[str, Any] | None:
    """The limits with which a run is started; its steps have their own."""
    found = bounds(given)
    if steps := [name for name in found if name.startswith("/")]:
        raise UsageError(
            f"--limit {steps[0]}: …: a run is started with limits of its own; a step says its own."
        )
    return found or None


def number_of(text: str, number: str) -> int | float:
    try:
        return int(number)
    except ValueError:
        pass
    try:
        return float(number)
    except ValueError:
        raise UsageError(f"--limit {text}: '{number}' is no number; {FORM}.") from None
