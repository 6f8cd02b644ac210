"""The ledger: what turns took, by step and by model; what nobody told is unknown, and not nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "tokens")
"""`tokens` are those of which nobody told what kind they are."""
COST_SOURCES = ("reported", "inferred", "computed")
"""Where a cost comes from: the provider said it, it follows from its totals, or from the list prices."""
UNKNOWN_MODEL = "unknown"
"""The name of a model that nobody told."""


@dataclass(slots=True)
class UsageEntry:
    """What some turns took; None where nobody told anything."""

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
        """One turn, as its event tells of it."""
        self.turns += 1
        self.add_usage(usage)
        self.turns_without_tokens += not any(name in usage for name in TOKEN_FIELDS)
        self.turns_without_cost += usage.get("cost") is None

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        source = usage.get("cost_source")
        cost_field = f"{source if source in COST_SOURCES else 'reported'}_cost"
        self.add({**{name: usage.get(name) for name in TOKEN_FIELDS}, cost_field: usage.get("cost")})

    def add_unknown_turns(self, turns: int) -> None:
        """Turns of which nobody told anything."""
        self.add(dict.fromkeys(("turns", "turns_without_tokens", "turns_without_cost"), turns))

    def add(self, amounts: Mapping[str, Any]) -> None:
        """Add what is a number; anybody may emit an event of that name, with anything in it."""
        for name in ENTRY_FIELDS & amounts.keys():
            if (amount := read_amount(amounts[name])) is not None:
                setattr(self, name, (getattr(self, name) or 0) + amount)

    def to_dict(self) -> dict[str, float]:
        """What is known, and how many turns there are of which it is not."""
        return {
            entry_field.name: value
            for entry_field in fields(self)
            if (value := getattr(self, entry_field.name))
        }


def read_amount(value: Any) -> int | float | None:
    """Return an amount that was used, also one that is written as text; None for anything else.

    A negative number would give budget back, and one that is not finite would use up or void every budget:
    neither is an amount.
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


ENTRY_FIELDS = frozenset(each.name for each in fields(UsageEntry))


@dataclass(slots=True)
class UsageLedger:
    """Entries by the paths of steps and the names of models."""

    entries: dict[tuple[str, str], UsageEntry] = field(default_factory=dict)
    _reported_turns: dict[str, int] = field(default_factory=dict)
    """Turns that events told of, of steps that are not over."""

    def add_turn(self, path: str, usage: Mapping[str, Any]) -> None:
        """A turn of an agent, as its `usage` event tells of it."""
        self._reported_turns[path] = self._reported_turns.get(path, 0) + 1
        models = usage.get("models")
        parts = [part for part in models if isinstance(part, Mapping)] if isinstance(models, list) else []
        first, *others = parts or [usage]
        self.entry(path, first.get("model")).add_turn(first)
        for other in others:
            self.entry(path, other.get("model")).add_usage(other)

    def settle_step(self, path: str, attributes: Mapping[str, Any]) -> None:
        """A step is over: what it used and no event told of, and what its own runs used."""
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


def sum_entries(entries: Iterator[tuple[str, UsageEntry]]) -> dict[str, dict[str, float]]:
    totals: dict[str, UsageEntry] = {}
    for name, entry in entries:
        totals.setdefault(name, UsageEntry()).add(entry.to_dict())
    return {name: amounts for name, entry in totals.items() if (amounts := entry.to_dict())}
