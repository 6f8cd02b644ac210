"""What a turn cost, from the running total that an agent tells."""

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
"""What kinds of tokens cost beside each other, near enough with all vendors."""


def turn_cost(
    total: float | None, usage: TurnUsage, before: Mapping[str, Any]
) -> tuple[TurnUsage, dict[str, Any]]:
    """What the turn took, with its cost, and what to hand in with the next.

    The total is of the whole session, says the protocol; of some agents it is of the process, and every turn
    has a process of its own. The tokens tell which: beside what they cost before, either the old total is in
    the new one or it is not. Where that is hard to see, the old total is small beside the new one.
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
