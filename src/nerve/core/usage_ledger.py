"""Token and cost totals by step and model. Missing figures count as unknown, not zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any

from nerve.lazy_dataclass import dataclass

TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "tokens")
"""`tokens` counts tokens whose kind the provider did not report."""
COST_SOURCES = ("reported", "inferred", "computed")
"""Sources of a cost: reported by the provider, inferred from its totals, or computed from list prices."""
UNKNOWN_MODEL = "unknown"
"""Stands for a model that the provider did not name."""


@dataclass(slots=True)
class UsageEntry:
    """Totals of some turns; None for a figure that was never reported."""

    turns: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    tokens: int | None = None
    reported_cost: float | None = None
    inferred_cost: float | None = None
    computed_cost: float | None = None
    turns_without_tokens: int = 0
    turns_without_cost: int = 0

    def add_turn(self, usage: Mapping[str, Any]) -> None:
        """Add one turn from the data of its `usage` event."""
        self.turns += 1
        self.add_usage(usage)
        self.turns_without_tokens += not any(name in usage for name in TOKEN_FIELDS)
        self.turns_without_cost += usage.get("cost") is None

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        source = usage.get("cost_source")
        cost_field = f"{source if source in COST_SOURCES else 'reported'}_cost"
        self.add({**{name: usage.get(name) for name in TOKEN_FIELDS}, cost_field: usage.get("cost")})

    def add_unknown_turns(self, turns: int) -> None:
        """Add turns without any reported figures."""
        self.add(dict.fromkeys(("turns", "turns_without_tokens", "turns_without_cost"), turns))

    def add(self, amounts: Mapping[str, Any]) -> None:
        """Add the values that are valid amounts. Users can emit events of the same name with any data."""
        for name in ENTRY_FIELDS & amounts.keys():
            if (amount := read_amount(amounts[name])) is not None:
                setattr(self, name, (getattr(self, name) or 0) + amount)

    def to_dict(self) -> dict[str, float]:
        """Return the known figures, and the numbers of turns without them."""
        return {
            entry_field.name: value
            for entry_field in fields(self)
            if (value := getattr(self, entry_field.name))
        }


def read_amount(value: Any) -> int | float | None:
    """Return a used amount, a number or a numeric string; None for anything else.

    A negative number would refund the budget, and an infinite one would exhaust it: neither is an amount.
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
        value = int(value) if math.isfinite(value) and value == int(value) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < math.inf else None


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


ENTRY_FIELDS = frozenset(entry_field.name for entry_field in fields(UsageEntry))


@dataclass(slots=True)
class UsageLedger:
    """Usage entries by step path and model name."""

    entries: dict[tuple[str, str], UsageEntry] = field(default_factory=dict)
    _reported_turns: dict[str, int] = field(default_factory=dict)
    """Turns reported by events so far, for each step that has not ended."""

    def add_turn(self, path: str, usage: Mapping[str, Any]) -> None:
        """Add one turn of an agent from the data of its `usage` event."""
        self._reported_turns[path] = self._reported_turns.get(path, 0) + 1
        models = usage.get("models")
        parts = [part for part in models if isinstance(part, Mapping)] if isinstance(models, list) else []
        first, *others = parts or [usage]
        self.entry(path, first.get("model")).add_turn(first)
        for other in others:
            self.entry(path, other.get("model")).add_usage(other)

    def settle_step(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Add the usage of an ended step that its events did not report, including that of its child runs."""
        reported_turns = self._reported_turns.pop(path, 0)
        usage = attributes.get("usage")
        if not isinstance(usage, Mapping):
            return
        if "run_id" in attributes:
            for model, model_usage in mapping_or_empty(usage.get("models")).items():
                self.entry(path, model).add(mapping_or_empty(model_usage))
            return
        entry = self.entry(path, usage.get("model") or attributes.get("model"))
        if not reported_turns:
            entry.add_usage(usage)
        entry.add_unknown_turns(max(0, int(read_amount(usage.get("turns")) or 0) - reported_turns))

    def entry(self, path: str, model: Any) -> UsageEntry:
        return self.entries.setdefault((path, str(model or UNKNOWN_MODEL)), UsageEntry())

    def by_model(self) -> dict[str, dict[str, float]]:
        return sum_entries((model, entry) for (_, model), entry in self.entries.items())

    def by_step(self) -> dict[str, dict[str, float]]:
        return sum_entries((path, entry) for (path, _), entry in self.entries.items())


def sum_amounts(amounts: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the sum of amounts by their names."""
    total = UsageEntry()
    for each in amounts:
        total.add(each)
    return total.to_dict()


def sum_entries(entries: Iterable[tuple[str, UsageEntry]]) -> dict[str, dict[str, float]]:
    totals: dict[str, UsageEntry] = {}
    for name, entry in entries:
        totals.setdefault(name, UsageEntry()).add(entry.to_dict())
    return {name: amounts for name, entry in totals.items() if (amounts := entry.to_dict())}
