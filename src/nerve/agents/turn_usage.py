"""Token and cost totals of turns. Missing figures count as unknown, not zero."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nerve.agents.provider import TurnUsage
from nerve.core.usage_ledger import COST_SOURCES, TOKEN_FIELDS, read_amount

log = logging.getLogger("nerve")

UNKNOWN_USAGE = {"cost_source": "unknown"}
"""The usage of a turn that reported none."""
AMOUNT_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
ENTRY_FIELDS = (*AMOUNT_FIELDS, "model")
VENDOR_BY_PROVIDER = {"claude": "anthropic", "codex": "openai"}
"""The vendor of a provider's models, for providers with exactly one."""


def read_usage(usage: TurnUsage | Mapping[str, Any] | None) -> TurnUsage | Mapping[str, Any] | None:
    """Return the reported usage with amounts as numbers; invalid amounts count as unknown."""
    if usage is None:
        return None
    if isinstance(usage, TurnUsage):
        parts = [part for item in usage.parts if isinstance(part := read_usage(item), TurnUsage)]
        return replace(
            usage, **_read_amounts({name: getattr(usage, name) for name in AMOUNT_FIELDS}), parts=parts
        )
    report = {
        **usage,
        **_read_amounts({name: usage[name] for name in (*AMOUNT_FIELDS, "tokens") if name in usage}),
    }
    if isinstance(models := report.get("models"), list):
        report["models"] = [read_usage(item) if isinstance(item, Mapping) else item for item in models]
    return {name: value for name, value in report.items() if value is not None}


def _read_amounts(raw_amounts: dict[str, Any]) -> dict[str, Any]:
    amounts = {name: read_amount(value) for name, value in raw_amounts.items()}
    for name, value in raw_amounts.items():
        if value is not None and amounts[name] is None:
            log.warning("agent reported %s=%r, which is not an amount; counting it as unknown", name, value)
    return amounts


def usage_entry(
    usage: TurnUsage | Mapping[str, Any] | None, provider: str, model: str | None
) -> dict[str, Any]:
    """Return the usage of one turn: counts, model, and whether its cost is reported, computed or unknown."""
    if usage is None:
        return {}
    if not isinstance(usage, TurnUsage):
        return dict(usage)
    if usage.model is None:
        usage = replace(usage, model=model)
    counts = {name: value for name in ENTRY_FIELDS if (value := getattr(usage, name)) is not None}
    if usage.parts:
        counts["models"] = [usage_entry(part, provider, model) for part in usage.parts]
    if usage.cost is not None:
        return {**counts, "cost_source": "inferred" if usage.inferred else "reported"}
    cost = cost_by_list_price(usage, provider)
    if cost is None:
        return {**counts, "cost_source": "unknown"}
    return {**counts, "cost": cost, "cost_source": "computed"}


def add_usage(before: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """Add the usage of two turns; usage by model is in the events of the turns."""
    if not before or not current:
        return {name: value for name, value in (before or current).items() if name != "models"}
    total = {name: value for name, value in {**before, **current}.items() if name != "models"}
    for name in (*TOKEN_FIELDS, "cost"):
        if name in before and name in current:
            total[name] = before[name] + current[name]
    sources = {before.get("cost_source"), current.get("cost_source")} - {None}
    if len(sources) > 1:
        total["cost_source"] = (
            max(sources, key=COST_SOURCES.index) if sources <= set(COST_SOURCES) else "partly unknown"
        )
    return total


def cost_by_list_price(usage: TurnUsage, provider: str) -> float | None:
    """Return the cost in US dollars at public list prices; None if the model, price or tokens are unknown.

    A model is priced only if its vendor is certain, from the provider or from a prefix like `openai:gpt-5`,
    because a self-hosted model may have the name of a paid one. The four token counts are disjoint, as in
    `TurnUsage`: `input_tokens` excludes tokens read from or written to a cache.
    """
    vendor, colon, model = (usage.model or "").partition(":")
    if not colon:
        vendor, model = VENDOR_BY_PROVIDER.get(provider, ""), vendor
    if not vendor or not model or usage.input_tokens is None or usage.output_tokens is None:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    read, write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens + read + write,
        output_tokens=usage.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=write,
    )
    try:
        return float(genai_prices.calc_price(tokens, model, provider_id=vendor).total_price)
    except (LookupError, ValueError):
        return None  # unknown model, or no price for these token kinds
