"""The cost of turns at list prices."""

from __future__ import annotations

import sys

import pytest

from nerve.agents.provider import TurnUsage
from nerve.agents.turn_usage import cost_by_list_price


@pytest.fixture
def prices() -> None:
    pytest.importorskip(
        "genai_prices", reason="genai-prices is not installed: pip install '.[llm]' in the clone of Nerve"
    )


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("usage", "provider", "dollars"),
    [
        (TurnUsage(1_000_000, 0, 0, 0, model="claude-opus-4-7"), "claude", 5.0),
        (TurnUsage(0, 1_000_000, 0, 0, model="claude-opus-4-7"), "claude", 25.0),
        (TurnUsage(0, 0, 1_000_000, 0, model="claude-opus-4-7"), "claude", 0.5),
        (TurnUsage(0, 0, 0, 1_000_000, model="claude-opus-4-7"), "claude", 6.25),
        (TurnUsage(1000, 100, None, None, model="anthropic:claude-opus-4-7"), "llm", 0.0075),
        (TurnUsage(1000, 100, model="gpt-5"), "codex", 0.00225),
        (TurnUsage(1000, 100, model="openai:gpt-5"), "llm", 0.00225),
    ],
)
def test_a_turn_of_a_known_model_is_priced(usage: TurnUsage, provider: str, dollars: float) -> None:
    assert cost_by_list_price(usage, provider) == pytest.approx(dollars)


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("usage", "provider"),
    [
        (TurnUsage(1000, 100), "claude"),
        (TurnUsage(1000, 100, model="heron-1"), "claude"),
        (TurnUsage(1000, 100, model="claude-opus-4-7"), "codex"),
        (TurnUsage(1000, 100, model="claude-opus-4-7"), "llm"),
        (TurnUsage(1000, 100, model="llama3:8b"), "llm"),
        (TurnUsage(1000, 100, model="openai:llama3:8b"), "llm"),
        (TurnUsage(1000, None, model="claude-opus-4-7"), "claude"),
        (TurnUsage(None, 100, model="claude-opus-4-7"), "claude"),
        (TurnUsage(1000, 100, model="gpt-5"), "command"),
    ],
)
def test_an_uncertain_model_has_no_price(usage: TurnUsage, provider: str) -> None:
    assert cost_by_list_price(usage, provider) is None


def test_the_cost_is_unknown_without_the_price_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost_by_list_price(TurnUsage(1000, 100, model="claude-opus-4-7"), "claude") is None
