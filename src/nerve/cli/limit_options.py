"""The --limit option: limits of a run or of one of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.cli.errors import UsageError
from nerve.core.limits import split_step_limits

LIMIT_SYNTAX = "use NAME=NUMBER, or /STEP:NAME=NUMBER for one step"


def parse_limit_options(options: Iterable[str]) -> dict[str, Any]:
    """Parse options such as `tokens=5000` and `/dev:cost=2` into the form of the API."""
    limits: dict[str, Any] = {}
    for text in options:
        target, equals, number = text.partition("=")
        step, _, name = target.rpartition(":")
        if not equals or not name or (step and not step.startswith("/")):
            raise UsageError(f"--limit {text}: {LIMIT_SYNTAX}.")
        (limits.setdefault(step, {}) if step else limits)[name] = parse_limit_number(text, number)
    try:
        split_step_limits(limits)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--limit: {error}") from None
    return limits


def parse_run_limit_options(options: Iterable[str]) -> dict[str, Any] | None:
    """Parse the limits of a new run, or return None. Step limits are not allowed here."""
    limits = parse_limit_options(options)
    if steps := [name for name in limits if name.startswith("/")]:
        raise UsageError(
            f"--limit {steps[0]}:…: step limits cannot be set when a run starts. Set them in the workflow."
        )
    return limits or None


def parse_limit_number(text: str, number: str) -> int | float:
    try:
        return int(number)
    except ValueError:
        pass
    try:
        return float(number)
    except ValueError:
        raise UsageError(f"--limit {text}: '{number}' is not a number; {LIMIT_SYNTAX}.") from None
