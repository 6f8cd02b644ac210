"""The scripted agent fulfils the provider contract, as far as scripted answers can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.contract import ProviderContract
from agents.stubs.steer import OVERLOADED, Order, order_of, pieces
from nerve.agents.provider import AssistantText, Reasoning, ThreadStarted, TurnFinished, TurnUsage
from nerve.testing import ScriptedProvider
from nerve.testing.scripted import RecordedQuery

TOOK = TurnUsage(100, 12)


class Script:
    """Answers by the orders in a prompt, and remembers the messages of each conversation."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.holding = 0
        self._said: dict[str, list[str]] = {}

    def __call__(self, call: RecordedQuery) -> Any:
        if call.resume is not None and call.resume not in self._said:
            return TurnFinished(call.thread, outcome="failed", error="there is no such conversation")
        said = [*self._said.get(call.resume or "", ()), call.prompt]
        self._said[call.thread] = said
        self.heard.append(SimpleNamespace(body={"said": said}))
        return [ThreadStarted(call.thread), *self._answer(call, order_of(said, []))]

    def _answer(self, call: RecordedQuery, order: Order) -> list[Any]:
        done = TurnFinished(call.thread, TOOK)
        match order.kind:
            case "think":
                return [Reasoning(order.text), "thought", done]
            case "hold":
                self.holding += 1
                return [AssistantText("wait ", partial=True), {"delay": 3600}]
            case "error":
                return [TurnFinished(call.thread, outcome="failed", error=f"error {order.text}")]
            case "overloaded":
                return [TurnFinished(call.thread, outcome="limited", error=OVERLOADED)]
            case "exhausted":
                return [TurnFinished(call.thread, outcome="failed", error="check your plan and billing")]
            case "limit":
                return [TurnFinished(call.thread, outcome="limited", error="too much")]
        parts = [AssistantText(piece, partial=True) for piece in pieces(order.text)]
        return [*parts, order.text, done]


class TestScripted(ProviderContract):
    processes = False
    shell = False
    thinks = True

    @pytest.fixture
    def stub(self) -> Script:
        return Script()

    @pytest.fixture
    def provider(self, stub: Script) -> ScriptedProvider:
        return ScriptedProvider(stub)
