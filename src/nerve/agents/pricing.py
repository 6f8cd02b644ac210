"""Compute the cost of a turn from its tokens if the provider does not report it."""

from __future__ import annotations

from nerve.agents.provider import TurnUsage

VENDOR_BY_PROVIDER = {"claude": "anthropic", "codex": "openai"}
"""The vendor of a provider's models, for providers with exactly one."""


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
