"""What one expression may cost; everything is charged before it is allocated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationLimits:
    """The bounds of an expression's text and of one evaluation."""

    source: int = 4_096
    """Characters of one expression."""
    template: int = 1 << 20
    """Characters of a template's text."""
    nesting: int = 64
    """How deep expressions and the values they make may be nested."""
    fuel: int = 100_000
    """Steps of one evaluation; about 0.2 µs each."""
    text: int = 1 << 20
    """Characters of a string an evaluation makes."""
    items: int = 100_000
    """Elements of an array an evaluation makes."""


DEFAULT_LIMITS = EvaluationLimits()
