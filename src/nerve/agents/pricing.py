"""What a turn cost, computed from its tokens where the provider does not report it."""

from __future__ import annotations

from nerve.agents.provider import TurnUsage

VENDOR_BY_PROVIDER = {"claude": "anthropic", "codex": "openai"}
"""Whose models a provider uses, where there is no doubt."""


def cost_by_list_price(usage: TurnUsage, provider: str) -> float | None:
    """In US dollars by the public list prices; None where model, price or tokens are not known.

    A model is priced only when its vendor is certain, by the provider or by a prefix as in `openai:gpt-5`:
    a model of one's own may have the name of one that costs. The four counts of tokens are apart, as in
    `Usage`: `input_tokens` are those that were neither read from a cache nor written to it.
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
        return None  # it has no such model, or no price of it for such tokens
