"""What turns cost by the list prices."""

from __future__ import annotations

import sys

import pytest

from nerve.agents.port import Usage
from nerve.agents.prices import cost_of


@pytest.fixture
def prices() -> None:
    pytest.importorskip("genai_prices", reason="genai-prices is not installed: pip install 'nerve[llm]'")


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("usage", "provider", "dollars"),
    [
        (Usage(1_000_000, 0, 0, 0, model="claude-opus-4-7"), "claude", 5.0),
        (Usage(0, 1_000_000, 0, 0, model="claude-opus-4-7"), "claude", 25.0),
        (Usage(0, 0, 1_000_000, 0, model="claude-opus-4-7"), "claude", 0.5),
        (Usage(0, 0, 0, 1_000_000, model="claude-opus-4-7"), "claude", 6.25),
        (Usage(1000, 100, None, None, model="anthropic:claude-opus-4-7"), "llm", 0.0075),
        (Usage(1000, 100, model="gpt-5"), "codex", 0.00225),
        (Usage(1000, 100, model="openai:gpt-5"), "llm", 0.00225),
    ],
)
def test_a_turn_of_a_known_model(usage: Usage, provider: str, dollars: float) -> None:
    assert cost_of(usage, provider) == pytest.approx(dollars)


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("usage", "provider"),
    [
        (Usage(1000, 100), "claude"),
        (Usage(1000, 100, model="heron-1"), "claude"),
        (Usage(1000, 100, model="claude-opus-4-7"), "codex"),
        (Usage(1000, 100, model="claude-opus-4-7"), "llm"),
        (Usage(1000, 100, model="llama3:8b"), "llm"),
        (Usage(1000, 100, model="openai:llama3:8b"), "llm"),
        (Usage(1000, None, model="claude-opus-4-7"), "claude"),
        (Usage(None, 100, model="claude-opus-4-7"), "claude"),
        (Usage(1000, 100, model="gpt-5"), "command"),
    ],
)
def test_what_is_not_certain_has_no_price(usage: Usage, provider: str) -> None:
    assert cost_of(usage, provider) is None


def test_without_the_prices_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost_of(Usage(1000, 100, model="claude-opus-4-7"), "claude") is None
