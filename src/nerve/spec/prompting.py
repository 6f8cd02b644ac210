"""Prompts: filled in, sent to the agent they are for, and remembered by thread and role."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nerve.core.nodes.base import Names
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.spec import models
from nerve.spec.nodes import Entry, Inline, beside
from nerve.spec.scope import Scope, Sight
from nerve.spec.spaces import AssertNode, RequestNode, answered, request
from nerve.spec.values import fill
from nerve.spec.variables import compile_prompt, variables_of

DEFAULT = "claude"
"""The provider of a prompt that nothing names one for."""


def prompt_entry(spec: models.Prompt, name: str, sight: Sight, names: Names) -> Entry:
    """What a prompt comes to: an agent, and what it is asked."""
    scope = sight.scope
    agent = spec.agent or spec.provider or scope.provider or DEFAULT
    node = names.find(agent)
    if node is None:
        raise ValueError(f"Agent not found: {agent}")
    text = prompt_text(spec, sight)
    asked = asking(spec, scope, text) if getattr(node, "takes_request", False) else text
    after = remembering(spec, scope)
    if not spec.detach:
        return Entry(node, asked, after=after)
    return Entry(Detached(name, spec.tag or name, spec.role or agent, scope, Entry(node, asked, after=after)))


def prompt_text(spec: models.Prompt, sight: Sight) -> str:
    scope = sight.scope
    variables = variables_of(scope.input, scope.facts.id, scope.facts.artifacts, scope.inputs)
    return compile_prompt(spec.text or "", hyphens=scope.hyphens).fill(
        variables, sight.also(args=fill(spec.args, sight))
    )


def asking(spec: models.Prompt, scope: Scope, text: str) -> dict[str, Any]:
    resume = None if spec.thread == "fresh" else scope.threads.get(spec.thread)
    asked = {
        "prompt": text,
        "resume": resume,
        "model": spec.model or scope.model,
        "artifacts": scope.facts.artifacts if scope.facts.folder else None,
    }
    return {key: value for key, value in asked.items() if value is not None}


def remembering(spec: models.Prompt, scope: Scope) -> Callable[[Result], Result]:
    """Keeps the thread that the next prompt goes on with, and what the role has said."""

    def after(result: Result) -> Result:
        if thread := result.attributes.get("thread"):
            scope.threads["shared" if spec.thread == "fresh" else spec.thread] = thread
        if spec.role and result.success:
            scope.roles[spec.role] = result.output
        return result

    return after


class Detached(Inline):
    """A prompt that is sent and not waited for; request and answer are facts that others can see."""

    def __init__(self, name: str, tag: str, who: str, scope: Scope, made: Entry) -> None:
        super().__init__(name)
        self.tag, self.who, self.scope, self.made = tag, who, scope, made

    async def execute(self, context: ExecutionContext) -> Result:
        scope = self.scope
        fact = request(scope.facts.id, self.tag, self.who, self.made.input)
        await context.call(RequestNode("_request"), fact, path=beside(context.path, "request"))
        if (earlier := scope.detached.pop(self.tag, None)) is not None:
            await earlier
        scope.detached[self.tag] = asyncio.ensure_future(self._answer(context, context.path))
        return Result.ok(None)

    async def _answer(self, context: ExecutionContext, path: str) -> None:
        result = await context.call(self.made.node, self.made.input, path=path)
        if self.made.after:
            self.made.after(result)
        fact = answered(self.scope.facts.id, self.tag, self.who, result)
        await context.call(AssertNode("_response"), fact, path=beside(path, "response"))
