"""Prompts: filled in, sent to the agent they are for, and remembered by thread and role."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from nerve.core.nodes.base import Names
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.facts import AssertNode
from nerve.core.result import Result, was_skipped
from nerve.spec import models
from nerve.spec.checks.names import DEFAULT
from nerve.spec.nodes import Entry, Inline, beside, budget_of, join
from nerve.spec.scope import Scope, Sent, Sight
from nerve.spec.spaces import RequestNode, answered, request
from nerve.spec.values import fill
from nerve.spec.variables import compile_prompt, variables_of


def prompt_entry(spec: models.Prompt, name: str, sight: Sight, names: Names) -> Entry:
    """What a prompt comes to: an agent, and what it is asked."""
    scope = sight.scope
    agent = spec.agent or spec.provider or scope.provider or DEFAULT
    node = names.find(agent)
    if node is None:
        raise ValueError(f"Agent not found: {agent}")
    text = prompt_text(spec, sight)

    provider = talks_to(node, names)

    def ask() -> Entry:
        asked = asking(spec, scope, text, provider) if getattr(node, "takes_request", False) else text
        return Entry(node, asked, after=remembering(spec, scope, provider), policy=budget_of(spec))

    before = None if spec.thread == "fresh" else scope.talking.get(spec.thread)
    if spec.detach:
        return Entry(
            Detached(name, spec, scope, request(scope, spec.tag or name, spec.role or agent, text), ask)
        )
    return ask() if before is None or before.done() else Entry(InTurn(name, before, ask))


def prompt_text(spec: models.Prompt, sight: Sight) -> str:
    scope = sight.scope
    variables = variables_of(scope.input, scope.facts.id, scope.facts.artifacts, scope.inputs)
    return compile_prompt(spec.text or "", hyphens=scope.hyphens).fill(
        variables, sight.also(args=fill(spec.args, sight))
    )


def talks_to(node: Any, names: Names) -> str:
    """The name of the provider behind an agent: a conversation with one is unknown to another."""
    provider = getattr(node, "provider", None)
    known: Mapping[str, Any] = getattr(names, "providers", {})
    return next((name for name, each in known.items() if each is provider or name == provider), node.id or "")


def asking(spec: models.Prompt, scope: Scope, text: str, provider: str) -> dict[str, Any]:
    resume = None if spec.thread == "fresh" else scope.threads.get((provider, spec.thread))
    asked = {
        "prompt": text,
        "resume": resume,
        "model": spec.model or scope.model,
        "artifacts": scope.facts.artifacts if scope.facts.folder else None,
        "schema": spec.output_schema,
        "permissions": spec.permissions and spec.permissions.model_dump(exclude_none=True),
        "tools": spec.tools,
        "max_turns": spec.max_turns,
        "fallback": spec.fallback,
    }
    return {key: value for key, value in asked.items() if value is not None}


def remembering(spec: models.Prompt, scope: Scope, provider: str = "") -> Callable[[Result], Result]:
    """Keeps the thread that the next prompt goes on with, and what the role has said."""

    def after(result: Result) -> Result:
        if was_skipped(result):
            return result
        if (thread := result.attributes.get("thread")) and "instead_of" not in result.attributes:
            name = "shared" if spec.thread == "fresh" else spec.thread
            scope.threads[provider, name] = thread
        if spec.role and result.success:
            scope.roles[spec.role] = result.output
        return result

    return after


class InTurn(Inline):
    """A prompt in a conversation in which another one is still being answered."""

    def __init__(self, name: str, before: asyncio.Task[Result], ask: Callable[[], Entry]) -> None:
        super().__init__(name)
        self.before, self.ask = before, ask

    async def execute(self, context: ExecutionContext) -> Result:
        await asyncio.wait([self.before])
        made = self.ask()
        return await made.entered(context, context.path)


class Detached(Inline):
    """A prompt that is sent and not waited for; request and answer are facts that others can see.

    In one conversation the next is asked when the one before is answered.
    """

    def __init__(
        self, name: str, spec: models.Prompt, scope: Scope, request: list[Any], ask: Callable[[], Entry]
    ) -> None:
        super().__init__(name)
        self.spec, self.scope, self.request, self.ask = spec, scope, request, ask
        self.tag: str = request[-1]["request-id"]

    async def execute(self, context: ExecutionContext) -> Result:
        scope, thread = self.scope, self.spec.thread
        failure = await join(scope, self.tag) if self.tag in scope.detached else None
        if failure is not None:
            return failure
        told = await context.call(RequestNode("_request"), self.request, path=beside(context.path, "request"))
        if not told.success:
            return told
        scope.answered.discard(self.tag)
        scope.asked[self.tag] = str(self.request[-1].get("agent", ""))
        before = scope.talking.get(thread) if thread != "fresh" else None
        task = asyncio.ensure_future(self._answer(context, context.path, before))
        scope.talking["shared" if thread == "fresh" else thread] = task
        scope.detached[self.tag] = Sent(task, context.path)
        return Result.ok(None)

    async def _answer(
        self, context: ExecutionContext, path: str, before: asyncio.Task[Result] | None
    ) -> Result:
        if before is not None and not before.done():
            await asyncio.wait([before])
        made = self.ask()
        result = await made.entered(context, path)
        self.scope.answered.add(self.tag)
        fact = answered(self.request, result)
        told = await context.call(AssertNode("_response"), fact, path=beside(path, "response"))
        return result if told.success else told
