"""Compute the cost of a turn from the running total that an agent reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nerve.agents.provider import TurnUsage

TOKEN_COST_WEIGHTS = {
    "input_tokens": 1.0,
    "output_tokens": 5.0,
    "cache_read_tokens": 0.1,
    "cache_write_tokens": 1.25,
}
"""Relative cost of token kinds, roughly the same for all vendors."""


def turn_cost(
    total: float | None, usage: TurnUsage, before: Mapping[str, Any]
) -> tuple[TurnUsage, dict[str, Any]]:
    """Return the usage of the turn with its cost, and the totals for the next turn.

    The protocol defines the total per session, but some agents report it per process, and every turn has its
    own process. The tokens show which: judged by what earlier tokens cost, the new total either includes the
    old one or does not. Where that is ambiguous, the old total is small compared with the new one.
    """
    if total is None:
        return usage, dict(before)
    weight = sum(TOKEN_COST_WEIGHTS[name] * (getattr(usage, name) or 0) for name in TOKEN_COST_WEIGHTS)
    old, old_weight = before.get("cost") or 0.0, before.get("weight") or 0.0
    least = old * (weight / old_weight + 0.5) if weight and old_weight else old
    if total < least or not old:
        return replace(usage, cost=total, inferred=bool(old)), {**before, "cost": total, "weight": weight}
    totals = {**before, "cost": total, "weight": old_weight + weight}
    return replace(usage, cost=total - old, inferred=True), totals
