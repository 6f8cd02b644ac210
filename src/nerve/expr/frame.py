"""The limits of expressions, and the state of one evaluation: its scope and its remaining fuel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.expr.errors import EvaluationRefused
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True)
class EvaluationLimits:
    """The limits of the source of an expression and of one evaluation."""

    source: int = 4_096
    """Characters of one expression."""
    template: int = 1 << 20
    """Characters of a template's text."""
    nesting: int = 64
    """The maximum nesting of expressions and of the values they create."""
    fuel: int = 100_000
    """Steps of one evaluation; about 0.2 µs each."""
    text: int = 1 << 20
    """Characters of a string that an evaluation creates."""
    items: int = 100_000
    """Elements of an array that an evaluation creates."""


DEFAULT_LIMITS = EvaluationLimits()


COPIED_CHARS_PER_STEP = 16
"""Characters created per step: strings cost memory, not time."""
SCANNED_CHARS_PER_STEP = 512
"""Characters compared or searched per step."""
STEPS_PER_VISIT = 8
"""Steps for iterating over an array or object."""


class Frame:
    """The scope, the parameters of arrow functions, and the remaining fuel."""

    __slots__ = ("fuel", "limits", "scope", "slots")

    slots: list[Any]
    """Only set for expressions with arrow functions."""

    def __init__(self, scope: Mapping[str, Any], limits: EvaluationLimits, fuel: int) -> None:
        self.scope = scope
        self.limits = limits
        self.fuel = fuel

    def charge(self, steps: int) -> None:
        """Charge steps before they are executed."""
        self.fuel -= steps
        if self.fuel < 0:
            raise EvaluationRefused(
                f"The evaluation takes more than {self.limits.fuel:,} steps; do less in one expression"
            )

    def charge_text(self, length: int) -> None:
        """Charge a string before it is created."""
        if length > self.limits.text:
            raise EvaluationRefused(
                f"String too long: {length:,} characters; at most {self.limits.text:,} are allowed"
            )
        self.charge(1 + length // COPIED_CHARS_PER_STEP)

    def charge_items(self, count: int) -> None:
        """Charge an array before it is created."""
        if count > self.limits.items:
            raise EvaluationRefused(
                f"Array too long: {count:,} elements; at most {self.limits.items:,} are allowed"
            )
        self.charge(1 + count)

    def charge_scan(self, length: int) -> None:
        """Charge a scan of a string."""
        self.charge(1 + length // SCANNED_CHARS_PER_STEP)

    def charge_visit(self, depth: int) -> None:
        """Charge iterating over an array or object; raise if it is nested too deeply."""
        self.charge(STEPS_PER_VISIT)
        if depth > self.limits.nesting:
            raise EvaluationRefused(f"Values are nested deeper than {self.limits.nesting} levels")
