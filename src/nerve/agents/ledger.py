"""The ledger: what turns took, added up, with what is not known kept apart from nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nerve.agents.port import Usage
from nerve.agents.prices import cost_of
from nerve.core.ledger import COUNTS, SOURCES, read_amount

log = logging.getLogger("nerve")

UNTOLD = {"cost_source": "unknown"}
"""A turn of which nobody told what it took."""
AMOUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
FIELDS = (*AMOUNTS, "model")


def read_usage(usage: Usage | Mapping[str, Any] | None) -> Usage | Mapping[str, Any] | None:
    """Return what a provider reports, with amounts as numbers; what is not an amount counts as unknown."""
    if usage is None:
        return None
    if isinstance(usage, Usage):
        parts = [part for each in usage.parts if isinstance(part := read_usage(each), Usage)]
        return replace(usage, **_read_amounts({name: getattr(usage, name) for name in AMOUNTS}), parts=parts)
    told = {**usage, **_read_amounts({name: usage[name] for name in (*AMOUNTS, "tokens") if name in usage})}
    if isinstance(models := told.get("models"), list):
        told["models"] = [read_usage(each) if isinstance(each, Mapping) else each for each in models]
    return {name: value for name, value in told.items() if value is not None}


def _read_amounts(told: dict[str, Any]) -> dict[str, Any]:
    amounts = {name: read_amount(value) for name, value in told.items()}
    for name, value in told.items():
        if value is not None and amounts[name] is None:
            log.warning(
                "an agent reports %s as %r, which is not an amount; it counts as unknown", name, value
            )
    return amounts


def entry(usage: Usage | Mapping[str, Any] | None, provider: str, model: str | None) -> dict[str, Any]:
    """One turn: its counts, its model, and whether its cost was told or computed, or is not known."""
    if usage is None:
        return {}
    if not isinstance(usage, Usage):
        return dict(usage)
    if usage.model is None:
        usage = replace(usage, model=model)
    told = {name: value for name in FIELDS if (value := getattr(usage, name)) is not None}
    if usage.parts:
        told["models"] = [entry(part, provider, model) for part in usage.parts]
    if usage.cost is not None:
        return {**told, "cost_source": "inferred" if usage.inferred else "reported"}
    cost = cost_of(usage, provider)
    if cost is None:
        return {**told, "cost_source": "unknown"}
    return {**told, "cost": cost, "cost_source": "computed"}


def added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Two turns together; what each model took, the events of the turns tell."""
    if not before or not now:
        return {name: value for name, value in (before or now).items() if name != "models"}
    total = {name: value for name, value in {**before, **now}.items() if name != "models"}
    for name in (*COUNTS, "cost"):
        if name in before and name in now:
            total[name] = before[name] + now[name]
    sources = {before.get("cost_source"), now.get("cost_source")} - {None}
    if len(sources) > 1:
        total["cost_source"] = together(sources)
    return total


def together(sources: set[Any]) -> str:
    """What is to be said of costs of several sources: the least certain of them."""
    return max(sources, key=SOURCES.index) if sources <= set(SOURCES) else "partly unknown"
