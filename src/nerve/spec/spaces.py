"""What a workflow does in the dataspace: asserts, retracts, tests and waits for facts."""

from __future__ import annotations

import asyncio
from typing import Any

from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.facts import AssertNode, RetractNode, space_of
from nerve.core.result import Result
from nerve.core.runtime import Signal, Timer
from nerve.dataspace import known, literal
from nerve.spec import models
from nerve.spec.nodes import Entry, Inline
from nerve.spec.scope import Scope, Sight
from nerve.spec.values import evaluate, fill, text


def assert_entry(spec: models.Assert, name: str, sight: Sight, names: Names) -> Entry:
    if spec.signal is None:
        return Entry(AssertNode(name), fill(spec.fact, sight))
    key = text(spec.key, sight) if spec.key is not None else None
    return Entry(
        AssertNode(name), known.signal(text(spec.signal, sight), key, fill(spec.value, sight)).to_json()
    )


def retract_entry(spec: models.Retract, name: str, sight: Sight, names: Names) -> Entry:
    meant = signal(spec, sight) if spec.signal is not None else holes(spec.fact, sight)
    return Entry(RetractNode(name), meant)


def signal(spec: models.Retract | models.Condition, sight: Sight) -> list[Any]:
    """The pattern of a signal; its value is captured."""
    key = text(spec.key, sight) if spec.key is not None else None
    *rest, named = known.signal_pattern(text(spec.signal or "", sight), key).to_json()
    if isinstance(named, dict):
        return [*rest, {**named, "value": "?value"}]
    return [*rest, named, {"value": "?value"}]


def pattern(condition: models.Condition, sight: Sight) -> list[Any]:
    """What a condition looks for."""
    if condition.response is not None:
        scope = sight.scope
        label, named = known.response_pattern(condition.response + scope.place, scope.facts.id).to_json()
        return [label, {**named, "text": "?value"}]
    return signal(condition, sight) if condition.signal is not None else holes(condition.fact, sight)


def holes(value: Any, sight: Sight) -> Any:
    """A pattern with its templates filled in; what is filled in is taken literally."""
    if isinstance(value, str):
        return literal(fill(value, sight)) if "{{" in value else value
    if isinstance(value, dict):
        return {key: holes(item, sight) for key, item in value.items()}
    return [holes(item, sight) for item in value] if isinstance(value, list) else value


class RequestNode(Node):
    """Says that an agent is asked; its answer to an earlier request of that name is taken back."""

    async def execute(self, context: ExecutionContext) -> Result:
        space = space_of(context)
        _, named = context.input
        await space.retract(known.response_pattern(named["request-id"], named["run"]), by=context.run_id)
        await space.assert_fact(context.input, by=context.run_id)
        return Result.ok(context.input)


def request(scope: Scope, tag: str, role: str, prompt: str) -> list[Any]:
    return known.agent_request(scope.facts.id, tag + scope.place, role, prompt).to_json()


def answered(request: list[Any], result: Result) -> list[Any]:
    """The fact that a request was answered."""
    asked = request[-1]
    error = None if result.success else result.error
    return known.agent_response(
        asked["request-id"], result.output, asked["run"], asked["agent"], error
    ).to_json()


def wait_entry(spec: models.Wait, name: str, sight: Sight) -> Entry:
    if spec.seconds is not None:
        seconds = evaluate(spec.seconds, sight) if isinstance(spec.seconds, str) else spec.seconds
        return Entry(Sleep(name, float(seconds)), sight["given"])
    named = {
        condition.name or str(n): pattern(condition, sight) for n, condition in enumerate(spec.any, start=1)
    }
    return Entry(Looking(name, spec, named, sight.scope), sight["given"])


def heard(result: Result, scope: Scope) -> Result:
    """Remember what a role has answered, also when the answer came from outside."""
    fact = result.attributes.get("fact")
    if not fact or fact[0] != "agent-response" or not isinstance(fact[-1], dict):
        return result
    answer = fact[-1]
    if answer.get("run") == scope.facts.id:
        tag = str(answer.get("request-id"))
        scope.heard.add(tag)
        if tag in scope.detached and tag in scope.answered:
            scope.detached[tag].overdue = False
        elif tag in scope.detached:
            # Somebody else has answered, and nobody waits for the agent now.
            scope.detached.pop(tag).task.cancel()
    if result.success:
        who = answer.get("agent") or scope.asked.get(str(answer.get("request-id")), "")
        scope.roles[who] = answer.get("text")
    return result


class Sleep(Inline):
    """Waits for a time, across restarts."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds

    async def execute(self, context: ExecutionContext) -> Result:
        await context.wait(Timer(context.take("sleep"), self.seconds))
        return Result.ok(context.input)


class Looking(Inline):
    """Waits for the first of several facts, or tests whether one is there."""

    def __init__(self, name: str, spec: models.Wait, patterns: dict[str, list[Any]], scope: Scope) -> None:
        super().__init__(name)
        self.spec, self.patterns, self.scope = spec, patterns, scope

    async def execute(self, context: ExecutionContext) -> Result:
        timeout = 0.0 if self.spec.test else self.spec.timeout
        wait = Signal(context.take("fact"), "", None, timeout, self.patterns)
        try:
            seen: dict[str, Any] = await context.wait(wait)
        except asyncio.CancelledError:
            self._mark_overdue()
            raise
        except TimeoutError:
            return self._late(timeout)
        value = value_of(seen)
        if self.spec.test:
            return heard(Result.ok(True, {**seen, "value": value}), self.scope)
        return heard(result_of(seen, value), self.scope)

    def _late(self, timeout: float | None) -> Result:
        if self.spec.test:
            return Result.ok(False)
        self._mark_overdue()
        if self.spec.on_timeout is not None:
            return Result.ok(None, {"which": self.spec.on_timeout})
        return Result.failed(f"nothing came within {timeout:g} s", "TimeoutError")

    def _mark_overdue(self) -> None:
        """The time for the answers that it waited for is up."""
        for condition in self.spec.any:
            sent = self.scope.detached.get(f"{condition.response}{self.scope.place}")
            if condition.response is not None and sent is not None:
                sent.overdue = True


def value_of(seen: dict[str, Any]) -> Any:
    """The value of a signal or an answer; of another fact, what its pattern captured."""
    captured = seen["captures"]
    return captured["value"] if captured.keys() == {"value"} else captured


def result_of(seen: dict[str, Any], value: Any) -> Result:
    if error := seen["fact"][-1].get("error") if seen["fact"][0] == "agent-response" else None:
        return Result.failed(str(error), "AgentFailed", value, seen)
    return Result.ok(value, seen)
