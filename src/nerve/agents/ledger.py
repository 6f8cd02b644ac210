"""The ledger: what turns took, added up, with what is not known kept apart from nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from nerve.agents.port import Usage
from nerve.agents.prices import cost_of

COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")


def entry(usage: Usage | Mapping[str, Any] | None, provider: str, model: str | None) -> dict[str, Any]:
    """One turn: its counts, its model, and whether its cost was reported, computed, or is not known."""
    if usage is None:
        return {}
    if not isinstance(usage, Usage):
        return dict(usage)
    told = {name: value for name, value in asdict(usage).items() if value is not None}
    if model is not None:
        told.setdefault("model", model)
    if usage.cost is not None:
        return {**told, "cost_source": "reported"}
    cost = cost_of(Usage(**{**asdict(usage), "model": told.get("model")}), provider)
    return (
        {**told, "cost_source": "unknown"}
        if cost is None
        else {**told, "cost": cost, "cost_source": "computed"}
    )


def added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Two turns together."""
    if not before or not now:
        return before or now
    total = {**before, **now}
    for name in (*COUNTS, "tokens"):
        if name in before and name in now:
            total[name] = before[name] + now[name]
    if before.get("cost_source") != now.get("cost_source"):
        total["cost_source"] = (
            "partly unknown"
            if "unknown" in (before.get("cost_source"), now.get("cost_source"))
            else "computed"
        )
    return total
