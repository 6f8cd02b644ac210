"""Limits: how far a run may go, and what it may spend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from nerve.core.notation_table import LIMIT_FORMS
from nerve.core.usage_ledger import read_amount
from nerve.core.validation import describe_value
from nerve.lazy_dataclass import dataclass

DEFAULT_MAX_DEPTH = 16
BUDGET_FIELDS = ("tokens", "cost", "turns", "agents")
"""Limits that are budgets: an exhausted budget holds the run until it is raised."""
STEP_BUDGET_FIELDS = ("tokens", "cost", "turns")
"""The budgets that a step can have."""
FRACTIONAL_LIMITS = ("wall_time", "cost")
"""The limits that can be fractional."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a run; None means unlimited.

    An exhausted budget (`tokens`, `cost`, `turns`, `agents`) holds the run; any other limit fails it.
    """

    steps: int | None = None
    iterations: int | None = None
    errors: int | None = None
    wall_time: float | None = None
    """Seconds of execution, without waits and without the time in which no process drives the run."""
    depth: int = DEFAULT_MAX_DEPTH
    """The maximum nesting of workflows that call workflows."""
    tokens: int | None = None
    cost: float | None = None
    """In US dollars."""
    turns: int | None = None
    """The number of agent turns."""
    agents: int | None = None
    """The number of steps executed by agents."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name != "depth":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                none = "" if name == "depth" else ", or None for unlimited"
                raise ValueError(
                    f"The limit {name} must be a non-negative number{none}, got {describe_value(value)}"
                )
            if name not in FRACTIONAL_LIMITS and value != int(value):
                raise ValueError(f"The limit {name} must be an integer, got {describe_value(value)}")

    @classmethod
    def of(cls, limits: Limits | Mapping[str, Any] | None) -> Limits:
        """Return limits from Limits, a mapping, or None."""
        if limits is None or isinstance(limits, Limits):
            return limits or cls()
        require_limits(limits)
        if unknown := [name for name in limits if name not in cls.__slots__]:
            raise ValueError(f"Unknown limit '{unknown[0]}'. Known limits: {', '.join(cls.__slots__)}")
        return cls(**limits)

    @classmethod
    def from_recorded(cls, data: Mapping[str, Any] | None) -> Limits:
        """Return limits from recorded data; unknown names are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (data or {}).items() if name in known})

    @property
    def has_counted_limits(self) -> bool:
        """Whether any limit that counts calls or usage is set."""
        is_counted = self.steps is not None or self.iterations is not None or self.errors is not None
        return is_counted or self.has_budgets

    @property
    def has_budgets(self) -> bool:
        """Whether any budget is set."""
        return (
            self.tokens is not None
            or self.cost is not None
            or self.turns is not None
            or self.agents is not None
        )

    def with_raised(self, by: Limits | Mapping[str, Any]) -> Limits:
        """Return these limits, replaced by those of `by` where they are set."""
        changes = by.to_dict() if isinstance(by, Limits) else by
        Limits.of(changes)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are set, as plain data."""
        values = zip(self.__slots__, read_limits(self), strict=True)
        return {name: value for name, value in values if value is not None}


read_limits = attrgetter(*Limits.__slots__)


def require_limits(limits: Any) -> None:
    """Raise ValueError for a value that is not a mapping of limits."""
    if not isinstance(limits, Mapping):
        raise ValueError(
            f"limits must be Limits(…) or a dict such as {{'steps': 100}}, got {describe_value(limits)}"
        )


def parse_step_limits(raw: Limits | Mapping[str, Any] | None) -> Limits | None:
    """Return the budget of one step; ValueError for limits that a step cannot have."""
    if raw is None:
        return None
    limits = Limits.of(raw)
    names = [name for name in limits.to_dict() if name != "depth"] if isinstance(raw, Limits) else raw
    if wrong := [name for name in names if name not in STEP_BUDGET_FIELDS]:
        raise ValueError(
            f"A step cannot have the limit '{wrong[0]}'. It can have: {', '.join(STEP_BUDGET_FIELDS)}"
        )
    return limits


def validate_raise(raw: Limits | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the checked limits to raise: those of a run by name, those of steps by path."""
    limits = raw.to_dict() if isinstance(raw, Limits) else {} if raw is None else raw
    split_step_limits(limits)
    return limits


def split_step_limits(limits: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the checked limits to raise: those of the run, and those of its steps by path."""
    require_limits(limits)
    steps = {name: value for name, value in limits.items() if str(name).startswith("/")}
    for path, value in steps.items():
        if not isinstance(value, Mapping):
            raise ValueError(
                f"The limits of step {path} must be an object such as {{'tokens': 5000}}, got {value!r}"
            )
        parse_step_limits(value)
    run = {name: value for name, value in limits.items() if name not in steps}
    Limits.of(run)
    return run, {path: dict(value) for path, value in steps.items()}


@dataclass(slots=True)
class RunUsage:
    """The usage of a run so far, counted from its results."""

    steps: int = 0
    iterations: int = 0
    errors: int = 0
    tokens: int = 0
    cost: float = 0.0
    turns: int = 0
    agents: int = 0

    @classmethod
    def of(cls, usage: Any, before: RunUsage | None = None) -> RunUsage:
        """Return the `usage` of one result, added to what was used before."""
        counted = cls() if before is None else before
        counted.spend(usage)
        return counted

    def spend(self, usage: Any) -> None:
        """Add the `usage` of one result: `tokens` or `input_tokens` and `output_tokens`, `cost`, `turns` …"""
        if usage is None or not isinstance(usage, Mapping):
            return
        tokens = usage.get("tokens")
        if tokens is None:
            tokens = sum(read_amount(usage.get(name)) or 0 for name in ("input_tokens", "output_tokens"))
        self.tokens += int(read_amount(tokens) or 0)
        self.cost += read_amount(usage.get("cost")) or 0
        self.turns += int(read_amount(usage.get("turns")) or 0)
        self.agents += int(read_amount(usage.get("agents")) or 0)

    def add(self, other: RunUsage, sign: int = 1) -> None:
        """Add or subtract other usage that counts against budgets."""
        for name in BUDGET_FIELDS:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))

    def minus(self, other: RunUsage) -> RunUsage:
        """Return the difference to other usage that counts against budgets."""
        difference = replace(self)
        difference.add(other, sign=-1)
        return difference

    def exceeded_limit(self, limits: Limits) -> str | None:
        """Return the name of the counting limit that the next step would exceed."""
        if limits.steps is not None and self.steps > limits.steps:
            return "steps"
        if limits.iterations is not None and self.iterations > limits.iterations:
            return "iterations"
        if limits.errors is not None and self.errors >= max(limits.errors, 1):
            return "errors"
        return None

    def to_dict(self) -> dict[str, float]:
        """Return the usage that counts against budgets."""
        return {name: value for name in BUDGET_FIELDS if (value := getattr(self, name))}


LIMIT_MESSAGES = {
    "steps": "Workflow exceeded max steps: {}.",
    "iterations": "Workflow exceeded max iterations: {}. This usually indicates an infinite loop."
    " Check your workflow routing logic.",
    "errors": "Workflow exceeded max errors: {}. This indicates a systemic issue."
    " Check your error handling logic.",
    "wall_time": "Workflow exceeded max duration: {}ms. Elapsed: {}ms."
    " Consider breaking into smaller workflows.",
}
"""Messages by limit."""
FILE_LIMIT_NAMES = {"iterations": "max_iterations", "wall_time": "max_duration_ms"}
"""Names of limits in a JSON step file."""


def limit_message(name: str, limits: Limits, path: str, elapsed: float = 0.0, kind: str = "") -> str:
    """Return the message for a reached limit; `elapsed` is the execution time in seconds, without waits.

    `kind` is the kind of the workflow, which decides how its file writes the limit.
    """
    value = getattr(limits, name)
    display_value = value * 1000 if name == "wall_time" else value
    reason = LIMIT_MESSAGES[name].format(f"{display_value:g}", f"{elapsed * 1000:.0f}")
    file_hint = f"{FILE_LIMIT_NAMES[name]} in the file, " if name in FILE_LIMIT_NAMES else ""
    if form := LIMIT_FORMS.get(kind, ""):
        file_hint = f"{form.format(name.replace('_', '-'))} in the file, "
    return (
        f"{reason} The run reached its limit {name}={value:g} at {path or '/'}; raise it with"
        f" {file_hint}Limits({name}=…) on the workflow, session.start(limits=…), or session.fork(limits=…)"
    )
