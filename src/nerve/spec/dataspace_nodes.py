"""Nodes that assert, retract, test and await facts in the dataspace."""

from __future__ import annotations

import asyncio
from typing import Any

from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.fact_nodes import AssertNode, FactChanges, require_dataspace
from nerve.core.result import Result
from nerve.core.runtime import SignalWait, TimerWait
from nerve.dataspace import builtin_records, literal
from nerve.spec import models
from nerve.spec.inline_nodes import InlineNode, PreparedCall
from nerve.spec.scope import Scope, ScopeView
from nerve.spec.template_values import evaluate_expression, fill_templates, render_text


def asserted_fact(spec: models.AssertSpec, view: ScopeView) -> Any:
    if spec.signal is None:
        return fill_templates(spec.fact, view)
    key = render_text(spec.key, view) if spec.key is not None else None
    value = fill_templates(spec.value, view)
    return builtin_records.signal(render_text(spec.signal, view), key, value).to_json()


def retracted_pattern(spec: models.RetractSpec | models.ConditionSpec, view: ScopeView) -> Any:
    """Return the pattern of a fact or a signal."""
    if spec.signal is None:
        return fill_pattern(spec.fact, view)
    return capture_signal_pattern(spec, view)


def capture_signal_pattern(spec: models.RetractSpec | models.ConditionSpec, view: ScopeView) -> list[Any]:
    """Return the pattern of a signal that captures its value."""
    key = render_text(spec.key, view) if spec.key is not None else None
    *rest, fields = builtin_records.signal_pattern(render_text(spec.signal or "", view), key).to_json()
    if isinstance(fields, dict):
        return [*rest, {**fields, "value": "?value"}]
    return [*rest, fields, {"value": "?value"}]


def condition_pattern(condition: models.ConditionSpec, view: ScopeView) -> list[Any]:
    """Return the pattern of a condition."""
    if condition.response is not None:
        scope = view.scope
        label, fields = builtin_records.response_pattern(
            condition.response + scope.item_path, scope.run_variables.id
        ).to_json()
        return [label, {**fields, "text": "?value"}]
    pattern: list[Any] = retracted_pattern(condition, view)
    return pattern


def fill_pattern(value: Any, view: ScopeView) -> Any:
    """Return a pattern with its templates filled in; filled values match literally."""
    if isinstance(value, str):
        return literal(fill_templates(value, view)) if "{{" in value else value
    if isinstance(value, dict):
        return {key: fill_pattern(item, view) for key, item in value.items()}
    return [fill_pattern(item, view) for item in value] if isinstance(value, list) else value


class RequestNode(Node):
    """Assert an agent request and retract the response to an earlier request with the same id."""

    async def execute(self, context: ExecutionContext) -> Result:
        space = require_dataspace(context)
        _, fields = context.input
        await space.retract(
            builtin_records.response_pattern(fields["request-id"], fields["run"]), by=context.run_id
        )
        await space.assert_fact(context.input, by=context.run_id)
        return Result.ok(context.input)

    def copied_facts(self, request: list[Any]) -> FactChanges:
        """Return the changes to make in a fork that reuses the step: the request itself was served."""
        fields = request[-1]
        pattern = builtin_records.response_pattern(fields["request-id"], fields["run"])
        return FactChanges(retracted=(pattern,))


class ResponseNode(AssertNode):
    """Assert the response to an agent request."""

    def copied_facts(self, response: list[Any]) -> FactChanges:
        """Return the changes to make in a fork that reuses the step: its own waits name its own id."""
        return FactChanges(asserted=(response,))


def agent_request_fact(scope: Scope, tag: str, role: str, prompt: str) -> list[Any]:
    return builtin_records.agent_request(
        scope.run_variables.id, tag + scope.item_path, role, prompt
    ).to_json()


def agent_response_fact(request: list[Any], result: Result) -> list[Any]:
    """Return the response fact of a request."""
    request_fields = request[-1]
    error = None if result.success else result.error
    return builtin_records.agent_response(
        request_fields["request-id"], result.output, request_fields["run"], request_fields["agent"], error
    ).to_json()


def prepare_wait(spec: models.WaitSpec, name: str, view: ScopeView) -> PreparedCall:
    if spec.seconds is not None:
        seconds = evaluate_expression(spec.seconds, view) if isinstance(spec.seconds, str) else spec.seconds
        return PreparedCall(SleepNode(name, float(seconds)), view["given"])
    patterns = {
        condition.name or str(n): condition_pattern(condition, view)
        for n, condition in enumerate(spec.any, start=1)
    }
    return PreparedCall(FactWait(name, spec, patterns, view.scope), view["given"])


def remember_role_answer(result: Result, scope: Scope) -> Result:
    """Record the answer of a role, even if the answer came from outside; return the result unchanged."""
    fact = result.attributes.get("fact")
    if not fact or fact[0] != "agent-response" or not isinstance(fact[-1], dict):
        return result
    answer = fact[-1]
    if answer.get("run") == scope.run_variables.id:
        tag = str(answer.get("request-id"))
        scope.awaited_tags.add(tag)
        if tag in scope.pending_prompts and tag in scope.answered_tags:
            scope.pending_prompts[tag].is_overdue = False
        elif tag in scope.pending_prompts:
            # An outside answer arrived first, so the run does not need the agent any more.
            scope.pending_prompts.pop(tag).task.cancel()
    if result.success:
        role = answer.get("agent") or scope.role_by_tag.get(str(answer.get("request-id")), "")
        scope.roles[role] = answer.get("text")
    return result


class SleepNode(InlineNode):
    """Wait for a duration; the timer survives restarts."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds

    async def execute(self, context: ExecutionContext) -> Result:
        await context.wait(TimerWait(context.next_path("sleep"), self.seconds))
        return Result.ok(context.input)


class FactWait(InlineNode):
    """Wait for the first of several facts, or test whether one is present."""

    def __init__(
        self, name: str, spec: models.WaitSpec, patterns: dict[str, list[Any]], scope: Scope
    ) -> None:
        super().__init__(name)
        self.spec, self.patterns, self.scope = spec, patterns, scope

    async def execute(self, context: ExecutionContext) -> Result:
        timeout = 0.0 if self.spec.test else self.spec.timeout
        wait = SignalWait(context.next_path("fact"), "", None, timeout, self.patterns)
        try:
            fact_match: dict[str, Any] = await context.wait(wait)
        except asyncio.CancelledError:
            self._mark_overdue()
            raise
        except TimeoutError:
            if self.spec.test:
                return Result.ok(False)
            self._mark_overdue()
            if self.spec.on_timeout is not None:
                return Result.ok(None, {"which": self.spec.on_timeout})
            return Result.failed(f"No matching fact within {timeout:g} s", "TimeoutError")
        captured = fact_match["captures"]
        value = captured["value"] if captured.keys() == {"value"} else captured
        if self.spec.test:
            return remember_role_answer(Result.ok(True, {**fact_match, "value": value}), self.scope)
        is_response = fact_match["fact"][0] == "agent-response"
        error = fact_match["fact"][-1].get("error") if is_response else None
        result = (
            Result.failed(str(error), "AgentFailed", value, fact_match)
            if error
            else Result.ok(value, fact_match)
        )
        return remember_role_answer(result, self.scope)

    def _mark_overdue(self) -> None:
        """Mark the prompts whose answers did not arrive in time."""
        for condition in self.spec.any:
            pending_prompt = self.scope.pending_prompts.get(f"{condition.response}{self.scope.item_path}")
            if condition.response is not None and pending_prompt is not None:
                pending_prompt.is_overdue = True
