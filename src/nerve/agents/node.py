"""AgentNode: a prompt answered by an agent, as a leaf."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from nerve.agents import registry
from nerve.agents.accounts import Accounts
from nerve.agents.permissions import Permissions
from nerve.agents.port import Options, Provider
from nerve.agents.request import Request
from nerve.agents.said import OUTPUT_LIMIT, WHOLE, AgentEnded
from nerve.agents.secrets import Secrets
from nerve.agents.talk import Talk
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.schemas import flaw_of

__all__ = ["OUTPUT_LIMIT", "WHOLE", "AgentEnded", "AgentNode"]

Thread = Literal["shared", "fresh", "fork"]


class AgentNode(Node):
    """Asks the provider, tells watchers every message and tool call, and gives the messages as one text.

    The input is a prompt, or a request with `prompt`, `resume`, `model`, `cwd` …, or any value. `provider` is
    one, or the name of one of the session's. `thread` says which conversation a further call goes on with:
    the one before (`shared`), a new one (`fresh`), or a copy of the one before (`fork`). With `output_schema`
    the output is JSON that fits it. Cancelling it stops the agent.
    """

    takes_request: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    """It begins only when its start is on disk, and may ask people in the middle."""

    def __init__(
        self,
        id: str | None = None,
        session: Names | None = None,
        provider: Provider | str | None = None,
        model: str | None = None,
        system: str | None = None,
        cwd: str | None = None,
        *,
        tools: Sequence[str] | None = None,
        thread: Thread = "shared",
        output_schema: Mapping[str, Any] | None = None,
        permissions: Permissions | Mapping[str, Any] | None = None,
        fallback: Provider | str | None = None,
        max_turns: int | None = None,
        env: Mapping[str, str] | None = None,
        **policy: Any,
    ) -> None:
        for each in (provider, *([fallback] if fallback is not None else [])):
            if not isinstance(each, str) and not callable(getattr(each, "query", None)):
                raise ValueError(f"an agent needs a provider with a method query(), not {each!r}")
        if thread not in ("shared", "fresh", "fork"):
            raise ValueError(f"thread is 'shared', 'fresh' or 'fork', not {thread!r}")
        if output_schema is not None and (flaw := flaw_of(output_schema)):
            raise ValueError(f"output_schema is no JSON Schema: {flaw}")
        super().__init__(id, session, **policy)
        self.provider, self.fallback = provider, fallback
        self.model, self.system, self.cwd = model, system, cwd
        self.thread, self.output_schema = thread, output_schema
        self.permissions = Permissions.of(permissions)
        self.options = Options(system=system, tools=tools, max_turns=max_turns, env=dict(env or {}))

    async def execute(self, context: ExecutionContext) -> Result:
        """Ask the agent, and return its answer as a Result."""
        try:
            talk = self._talk(context)
        except Exception as error:
            return told_as_error(Result.raised(error), None)
        try:
            return await talk.result()
        except Exception as error:
            await talk.keep_count()
            return told_as_error(Result.raised(error), talk)

    def _talk(self, context: ExecutionContext) -> Talk:
        provider = found(self.provider, context)
        request = self._request(context, provider)
        options = replace(
            self.options,
            model=request.model,
            schema=request.schema,
            tools=self.options.tools if request.tools is None else request.tools,
            max_turns=request.max_turns or self.options.max_turns,
        )
        fallback = request.fallback or self.fallback
        return Talk(
            context,
            self.id or "agent",
            provider,
            request,
            options,
            self.permissions if request.permissions is None else Permissions.of(request.permissions),
            getattr(context.session, "accounts", None) or Accounts(),
            Secrets(os.environ, options.env),
            None if fallback is None else partial(found, fallback, context),
            self.thread == "fork",
            self.thread != "fresh" and not request.explicit,
        )

    def _request(self, context: ExecutionContext, provider: Provider) -> Request:
        request = Request.of(context.input)
        changed = {key: context.overrides[key] for key in ("prompt", "model") if key in context.overrides}
        request = replace(request, **changed)
        if not request.prompt.strip():
            raise ValueError(f"the agent '{self.id or type(self).__name__}' was given no prompt")
        before = (
            context.leaf.threads.last.get((self.id or "", provider.name)) if self.thread != "fresh" else None
        )
        return replace(
            request,
            model=request.model or self.model,
            cwd=request.cwd or self.cwd,
            schema=request.schema or self.output_schema,
            resume=request.resume if request.explicit else before,
        )


def found(provider: Provider | str | None, context: ExecutionContext) -> Provider:
    if not isinstance(provider, str):
        assert provider is not None
        return provider
    known: Provider | None = context.session.provider(provider) if context.session is not None else None
    if known is None:
        given = getattr(context.session, "providers", {})
        names = sorted({*given, *registry.names()})
        raise ValueError(f"there is no provider '{provider}'. There are: {', '.join(names)}")
    return known


def told_as_error(result: Result, talk: Talk | None) -> Result:
    result.settled = "error"
    if talk is None:
        return result
    result["error"] = talk.secrets.text(result.error)
    return talk.ended(result)
