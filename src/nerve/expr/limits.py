"""Limits of expressions; everything is charged before it is allocated."""

from __future__ import annotations

from dataclasses import dataclass


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
