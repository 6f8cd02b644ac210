"""Prompt nodes: render a prompt, send it to an agent, and record the thread and the role's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from nerve.core.nodes.base import NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result, was_skipped
from nerve.project.agent_settings import escape_references
from nerve.spec import models
from nerve.spec.checks.names import DEFAULT_PROVIDER
from nerve.spec.checks.node_rules import agent_settings_of
from nerve.spec.dataspace_nodes import (
    RequestNode,
    ResponseNode,
    agent_request_fact,
    agent_response_fact,
)
from nerve.spec.inline_nodes import (
    InlineNode,
    PreparedCall,
    join_detached_prompt,
    limits_policy,
    sibling_path,
)
from nerve.spec.prompt_variables import compile_prompt, variable_values
from nerve.spec.scope import PendingPrompt, Scope, ScopeView
from nerve.spec.signals import result_with_signal
from nerve.spec.template_values import fill_templates, render_text


def prepare_prompt(
    spec: models.PromptSpec,
    name: str,
    view: ScopeView,
    names: NodeRegistry,
    finish: Callable[[PreparedCall], PreparedCall] = lambda prepared: prepared,
) -> PreparedCall:
    """Return the call of the agent of a prompt, or a detached or serialized prompt node.

    `finish` completes the call of the agent.
    """
    scope = view.scope
    agent = spec.agent or spec.provider or scope.provider or DEFAULT_PROVIDER
    node = names.find(agent)
    if node is None:
        raise ValueError(f"Agent not found: {agent}")
    text = render_prompt(spec, view)

    provider = agent_provider_name(node, names)

    def ask() -> PreparedCall:
        agent_input = (
            build_agent_request(spec, view, text, provider) if getattr(node, "takes_request", False) else text
        )
        prepared = PreparedCall(
            node, agent_input, map_result=answer_recorder(spec, scope, provider), policy=limits_policy(spec)
        )
        return finish(prepared)

    previous_task = None if spec.thread == "fresh" else scope.detached_tasks.get(spec.thread)
    if spec.detach:
        return PreparedCall(
            DetachedPrompt(
                name, spec, scope, agent_request_fact(scope, spec.tag or name, spec.role or agent, text), ask
            )
        )
    if previous_task is None or previous_task.done():
        return ask()
    return PreparedCall(SerializedPrompt(name, previous_task, ask))


def render_prompt(spec: models.PromptSpec, view: ScopeView) -> str:
    return fill_prompt(spec.text or "", view.with_values(args=fill_templates(spec.args, view)))


def fill_prompt(text: str, view: ScopeView) -> str:
    """Return a text with its variables, such as `$1`, and its expressions filled."""
    scope = view.scope
    variables = variable_values(
        scope.input, scope.run_variables.id, scope.run_variables.artifacts, scope.inputs
    )
    return compile_prompt(text, hyphens=scope.hyphens).fill(variables, view)


def agent_provider_name(node: Any, names: NodeRegistry) -> str:
    """Return the provider name of an agent; conversations belong to one provider."""
    provider = getattr(node, "provider", None)
    known: Mapping[str, Any] = getattr(names, "providers", {})
    return next(
        (name for name, known_provider in known.items() if known_provider is provider or name == provider),
        node.id or "",
    )


def build_agent_request(spec: models.PromptSpec, view: ScopeView, text: str, provider: str) -> dict[str, Any]:
    scope = view.scope
    resume = None if spec.thread == "fresh" else scope.threads.get((provider, spec.thread))
    request_fields = {
        "prompt": text,
        "resume": resume,
        "model": spec.model or scope.model,
        "artifacts": scope.run_variables.artifacts if scope.run_variables.folder else None,
        "schema": spec.output_schema,
        "tools": spec.tools,
        "max_turns": spec.max_turns,
        "fallback": spec.fallback,
        "on_idle": spec.on_idle,
        **fill_settings_of(spec, view),
    }
    return {key: value for key, value in request_fields.items() if value is not None}


def fill_settings_of(spec: models.AgentNodeBase, view: ScopeView) -> dict[str, Any]:
    """Return the settings of a step for its agent; a filled value cannot refer to a variable."""
    settings = agent_settings_of(spec)
    if (system := settings.get("system")) is not None:
        settings["system"] = render_text(system, view)
    if (env := settings.get("env")) is not None:
        settings["env"] = {
            name: escape_references(render_text(text, view)) if "{{" in text else text
            for name, text in env.items()
        }
    return settings


def answer_recorder(spec: models.PromptSpec, scope: Scope, provider: str = "") -> Callable[[Result], Result]:
    """Return a callback that records the thread to resume and the answer of the role."""

    def record_answer(result: Result) -> Result:
        if was_skipped(result):
            return result
        if spec.signal is not None:
            result = result_with_signal(result, spec.signal)
        if (thread := result.attributes.get("thread")) and "instead_of" not in result.attributes:
            name = "shared" if spec.thread == "fresh" else spec.thread
            scope.threads[provider, name] = thread
        if spec.role and result.success:
            scope.roles[spec.role] = result.output
        return result

    return record_answer


class SerializedPrompt(InlineNode):
    """A prompt that waits for the previous prompt of the same conversation."""

    def __init__(
        self, name: str, previous_task: asyncio.Task[Result], ask: Callable[[], PreparedCall]
    ) -> None:
        super().__init__(name)
        self.previous_task, self.ask = previous_task, ask

    async def execute(self, context: ExecutionContext) -> Result:
        await asyncio.wait([self.previous_task])
        prepared = self.ask()
        return await prepared.execute(context, context.path)


class DetachedPrompt(InlineNode):
    """A prompt that runs in the background; its request and its answer are asserted as facts.

    Prompts of one conversation run one after the other.
    """

    def __init__(
        self,
        name: str,
        spec: models.PromptSpec,
        scope: Scope,
        request: list[Any],
        ask: Callable[[], PreparedCall],
    ) -> None:
        super().__init__(name)
        self.spec, self.scope, self.request, self.ask = spec, scope, request, ask
        self.tag: str = request[-1]["request-id"]

    async def execute(self, context: ExecutionContext) -> Result:
        scope, thread = self.scope, self.spec.thread
        failure = await join_detached_prompt(scope, self.tag) if self.tag in scope.pending_prompts else None
        if failure is not None:
            return failure
        request_result = await context.call(
            RequestNode("_request"), self.request, path=sibling_path(context.path, "request")
        )
        if not request_result.success:
            return request_result
        scope.answered_tags.discard(self.tag)
        scope.role_by_tag[self.tag] = str(self.request[-1].get("agent", ""))
        previous_task = scope.detached_tasks.get(thread) if thread != "fresh" else None
        task = asyncio.ensure_future(self._answer(context, context.path, previous_task))
        scope.detached_tasks["shared" if thread == "fresh" else thread] = task
        scope.pending_prompts[self.tag] = PendingPrompt(task, context.path)
        return Result.ok(None)

    async def _answer(
        self, context: ExecutionContext, path: str, previous_task: asyncio.Task[Result] | None
    ) -> Result:
        if previous_task is not None and not previous_task.done():
            await asyncio.wait([previous_task])
        prepared = self.ask()
        result = await prepared.execute(context, path)
        self.scope.answered_tags.add(self.tag)
        fact = agent_response_fact(self.request, result)
        response_result = await context.call(
            ResponseNode("_response"), fact, path=sibling_path(path, "response")
        )
        return result if response_result.success else response_result
