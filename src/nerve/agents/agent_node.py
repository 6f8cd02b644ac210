"""AgentNode: a leaf that sends a prompt to an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from nerve.agents import registry
from nerve.agents.agent_request import AgentRequest
from nerve.agents.conversation import AgentConversation
from nerve.agents.permissions import Permissions
from nerve.agents.provider import Provider, QueryOptions
from nerve.agents.provider_slots import ProviderSlots
from nerve.agents.redaction import Redactor
from nerve.agents.turn_output import MAX_ENTRY_CHARS, MAX_OUTPUT_CHARS, AgentEnded
from nerve.core.json_schema import find_schema_error
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.trace_context import trace_environment

__all__ = ["MAX_ENTRY_CHARS", "MAX_OUTPUT_CHARS", "AgentEnded", "AgentNode"]

ThreadMode = Literal["shared", "fresh", "fork"]


class AgentNode(Node):
    """Query a provider, emit every message and tool call, and return the messages as one string.

    The input is a prompt, a request with `prompt`, `resume`, `model`, `cwd` …, or any other value. `provider`
    is a provider or the name of one in the session. `thread` selects the conversation that a later call uses:
    the previous one (`shared`), a new one (`fresh`), or a copy of the previous one (`fork`). With
    `output_schema`, the output is JSON that matches the schema. Cancelling the node stops the agent.
    """

    takes_request: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    """The node starts only after its start is on disk, because it may open gates while it runs."""

    def __init__(
        self,
        id: str | None = None,
        session: NodeRegistry | None = None,
        provider: Provider | str | None = None,
        model: str | None = None,
        system: str | None = None,
        cwd: str | None = None,
        *,
        tools: Sequence[str] | None = None,
        thread: ThreadMode = "shared",
        output_schema: Mapping[str, Any] | None = None,
        permissions: Permissions | Mapping[str, Any] | None = None,
        fallback: Provider | str | None = None,
        max_turns: int | None = None,
        env: Mapping[str, str] | None = None,
        **policy: Any,
    ) -> None:
        for candidate in (provider, *([fallback] if fallback is not None else [])):
            if not isinstance(candidate, str) and not callable(getattr(candidate, "query", None)):
                raise ValueError(f"provider must have a query() method, got {candidate!r}")
        if thread not in ("shared", "fresh", "fork"):
            raise ValueError(f"thread must be 'shared', 'fresh' or 'fork', got {thread!r}")
        if output_schema is not None and (flaw := find_schema_error(output_schema)):
            raise ValueError(f"output_schema is not a valid JSON Schema: {flaw}")
        super().__init__(id, session, **policy)
        self.provider, self.fallback = provider, fallback
        self.model, self.system, self.cwd = model, system, cwd
        self.thread, self.output_schema = thread, output_schema
        self.permissions = Permissions.of(permissions)
        self.options = QueryOptions(system=system, tools=tools, max_turns=max_turns, env=dict(env or {}))

    async def execute(self, context: ExecutionContext) -> Result:
        """Query the agent and return its answer as a Result."""
        try:
            conversation = self._make_conversation(context)
        except Exception as error:
            return agent_error_result(Result.from_exception(error), None)
        try:
            return await conversation.result()
        except Exception as error:
            await conversation.record_usage()
            return agent_error_result(Result.from_exception(error), conversation)

    def _make_conversation(self, context: ExecutionContext) -> AgentConversation:
        provider = resolve_provider(self.provider, context)
        request = self._make_request(context, provider)
        options = replace(
            self.options,
            model=request.model,
            schema=request.schema,
            env={**trace_environment(context), **self.options.env},
            tools=self.options.tools if request.tools is None else request.tools,
            max_turns=request.max_turns or self.options.max_turns,
            permissions=self.permissions
            if request.permissions is None
            else Permissions.of(request.permissions),
        )
        fallback = request.fallback or self.fallback
        return AgentConversation(
            context,
            self.id or "agent",
            provider,
            request,
            options,
            getattr(context.session, "provider_slots", None) or ProviderSlots(),
            Redactor(os.environ, options.env),
            None if fallback is None else partial(resolve_provider, fallback, context),
            self.thread == "fork",
            self.thread != "fresh" and not request.explicit,
        )

    def _make_request(self, context: ExecutionContext, provider: Provider) -> AgentRequest:
        request = AgentRequest.of(context.input)
        overrides = {key: context.overrides[key] for key in ("prompt", "model") if key in context.overrides}
        request = replace(request, **overrides)
        if not request.prompt.strip():
            raise ValueError(f"Agent '{self.id or type(self).__name__}' received an empty prompt")
        previous_thread = (
            context.leaf_runtime.threads.last.get((self.id or "", provider.name))
            if self.thread != "fresh"
            else None
        )
        return replace(
            request,
            model=request.model or self.model,
            cwd=request.cwd or self.cwd,
            schema=request.schema or self.output_schema,
            resume=request.resume if request.explicit else previous_thread,
        )


def resolve_provider(provider: Provider | str | None, context: ExecutionContext) -> Provider:
    if not isinstance(provider, str):
        assert provider is not None
        return provider
    resolved: Provider | None = context.session.provider(provider) if context.session is not None else None
    if resolved is None:
        session_providers = getattr(context.session, "providers", {})
        names = sorted({*session_providers, *registry.installed_provider_names()})
        raise ValueError(f"Unknown provider '{provider}'. Available: {', '.join(names)}")
    return resolved


def agent_error_result(result: Result, conversation: AgentConversation | None) -> Result:
    result.settlement = "error"
    if conversation is None:
        return result
    result["error"] = conversation.redactor.redact_text(result.error)
    return conversation.finish_result(result)
