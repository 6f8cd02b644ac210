"""The state of one evaluation: what is in sight, and what may still be spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.expr.errors import EvaluationRefused
from nerve.expr.limits import EvaluationLimits

COPIED_CHARS_PER_STEP = 16
"""Characters made for one step: memory, not time, is what strings cost."""
SCANNED_CHARS_PER_STEP = 512
"""Characters compared or searched for one step."""
STEPS_PER_VISIT = 8
"""Steps for an array or object that is gone through."""


class Frame:
    """The scope, the arrow functions' parameters, and the fuel that is left."""

    __slots__ = ("fuel", "limits", "scope", "slots")

    slots: list[Any]
    """Set where there are arrow functions."""

    def __init__(self, scope: Mapping[str, Any], limits: EvaluationLimits, fuel: int) -> None:
        self.scope = scope
        self.limits = limits
        self.fuel = fuel

    def charge(self, steps: int) -> None:
        """Charge what is about to be done."""
        self.fuel -= steps
        if self.fuel < 0:
            raise EvaluationRefused(
                f"this takes more than {self.limits.fuel:,} steps; do less in one expression"
            )

    def charge_text(self, length: int) -> None:
        """Charge a string that is about to be made."""
        if length > self.limits.text:
            raise EvaluationRefused(
                f"a string of {length:,} characters; at most {self.limits.text:,} are allowed"
            )
        self.charge(1 + length // COPIED_CHARS_PER_STEP)

    def charge_items(self, count: int) -> None:
        """Charge an array that is about to be made."""
        if count > self.limits.items:
            raise EvaluationRefused(
                f"an array of {count:,} elements; at most {self.limits.items:,} are allowed"
            )
        self.charge(1 + count)

    def charge_scan(self, length: int) -> None:
        """Charge a look through a string."""
        self.charge(1 + length // SCANNED_CHARS_PER_STEP)

    def charge_visit(self, depth: int) -> None:
        """Charge an array or object that is gone through; refuse it where it is nested too deeply."""
        self.charge(STEPS_PER_VISIT)
        if depth > self.limits.nesting:
            raise EvaluationRefused(f"values are nested deeper than {self.limits.nesting} levels")
