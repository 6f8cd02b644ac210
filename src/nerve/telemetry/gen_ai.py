"""Attributes of the OpenTelemetry conventions for generative AI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.agents.turn_usage import VENDOR_BY_PROVIDER
from nerve.core.json_codec import encode_json
from nerve.core.usage_ledger import read_amount

INPUT_TOKEN_FIELDS = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
"""Disjoint in the journal; the convention counts cached tokens as part of the input."""


def provider_name(provider: Any) -> str:
    """Return the name of a provider in the conventions; its own name if they have none."""
    name = str(provider or "unknown")
    return VENDOR_BY_PROVIDER.get(name, name)


def agent_attributes(
    agent: str, provider: str, results: Mapping[str, Any], usage: Mapping[str, Any], thread: str | None
) -> dict[str, Any]:
    """Return the attributes of a span `invoke_agent`."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider,
        "gen_ai.agent.name": agent,
        **usage_attributes(usage),
    }
    if isinstance(model := results.get("model") or usage.get("model"), str):
        attributes["gen_ai.request.model"] = model
    if thread is not None:
        attributes["gen_ai.conversation.id"] = thread
    if (turns := read_amount(usage.get("turns"))) is not None:
        attributes["nerve.usage.turns"] = int(turns)
    return attributes


def turn_attributes(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of one turn of an agent."""
    attributes = usage_attributes(usage)
    if isinstance(model := usage.get("model"), str):
        attributes["gen_ai.response.model"] = model
    return attributes


def usage_attributes(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokens and cost; figures that are not known are left out."""
    amounts = {name: read_amount(usage.get(name)) for name in (*INPUT_TOKEN_FIELDS, "output_tokens")}
    attributes: dict[str, Any] = {}
    if amounts["input_tokens"] is not None:
        attributes["gen_ai.usage.input_tokens"] = int(sum(amounts[name] or 0 for name in INPUT_TOKEN_FIELDS))
    if (read := amounts["cache_read_tokens"]) is not None:
        attributes["gen_ai.usage.cache_read.input_tokens"] = int(read)
    if (write := amounts["cache_write_tokens"]) is not None:
        attributes["gen_ai.usage.cache_creation.input_tokens"] = int(write)
    if (output := amounts["output_tokens"]) is not None:
        attributes["gen_ai.usage.output_tokens"] = int(output)
    if (cost := read_amount(usage.get("cost"))) is not None:
        attributes["nerve.usage.cost"] = float(cost)
    return attributes


def message_attributes(prompt: str, answer: str) -> dict[str, str]:
    """Return a prompt and an answer as the conventions write messages."""
    return {
        "gen_ai.input.messages": encode_message("user", prompt),
        "gen_ai.output.messages": encode_message("assistant", answer, finish_reason="stop"),
    }


def encode_message(role: str, text: str, **more: str) -> str:
    return encode_json([{"role": role, "parts": [{"type": "text", "content": text}], **more}])
