"""AgentNode: a leaf that sends a prompt to an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from nerve.agents import registry
from nerve.agents.agent_request import AgentRequest
from nerve.agents.agent_tool import AgentTool
from nerve.agents.conversation import AgentConversation
from nerve.agents.permissions import Permissions
from nerve.agents.provider import AgentEnded, Provider, QueryOptions
from nerve.agents.provider_slots import ProviderSlots
from nerve.agents.setting_support import check_tools, may_edit_files, prepare_options
from nerve.agents.turn_output import MAX_ENTRY_CHARS, MAX_OUTPUT_CHARS
from nerve.core.json_schema import find_schema_error
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.trace_context import trace_environment
from nerve.project.agent_settings import AgentSettings

__all__ = ["MAX_ENTRY_CHARS", "MAX_OUTPUT_CHARS", "AgentEnded", "AgentNode"]

ThreadMode = Literal["shared", "fresh", "fork"]


class AgentNode(Node):
    """Query a provider, emit every message and tool call, and return the messages as one string.

    The input is a prompt, a request with `prompt`, `resume`, `model`, `cwd` …, or any other value. `provider`
    is a provider or the name of one in the session. `thread` selects the conversation that a later call uses:
    the previous one (`shared`), a new one (`fresh`), or a copy of the previous one (`fork`). With
    `output_schema`, the output is JSON that matches the schema. Cancelling the node stops the agent.
    `workspace="shared"` says that it may edit files of a folder in which another agent works.
    """

    changes_files: ClassVar[bool] = True
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
        tools: Sequence[str | Callable[..., Any]] | None = None,
        thread: ThreadMode = "shared",
        output_schema: Mapping[str, Any] | None = None,
        permissions: Permissions | Mapping[str, Any] | None = None,
        fallback: Provider | str | None = None,
        max_turns: int | None = None,
        env: Mapping[str, str] | None = None,
        effort: str | None = None,
        mcp: Mapping[str, Mapping[str, Any]] | Sequence[str] | None = None,
        skills: bool | Sequence[str] | None = None,
        hooks: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        subagents: Mapping[str, Mapping[str, Any]] | None = None,
        instructions: bool | None = None,
        workspace: Literal["shared"] | None = None,
        **policy: Any,
    ) -> None:
        for candidate in (provider, *([fallback] if fallback is not None else [])):
            if not isinstance(candidate, str) and not callable(getattr(candidate, "query", None)):
                raise ValueError(f"provider must have a query() method, got {candidate!r}")
        if thread not in ("shared", "fresh", "fork"):
            raise ValueError(f"thread must be 'shared', 'fresh' or 'fork', got {thread!r}")
        if output_schema is not None and (flaw := find_schema_error(output_schema)):
            raise ValueError(f"output_schema is not a valid JSON Schema: {flaw}")
        if workspace not in (None, "shared"):
            raise ValueError(f"workspace must be 'shared', got {workspace!r}. Use WorkspaceNode for another")
        super().__init__(id, session, **policy)
        self.workspace = workspace
        self.provider, self.fallback = provider, fallback
        self.cwd, self.thread, self.output_schema = cwd, thread, output_schema
        settings = {
            "model": model or None,
            "system": system or None,
            "effort": effort,
            "permissions": permissions if permissions is None else Permissions.of(permissions).to_dict(),
            "env": env,
            "mcp": mcp,
            "skills": skills,
            "hooks": hooks,
            "subagents": subagents,
            "instructions": instructions,
        }
        self.settings = AgentSettings.of(settings)
        self.step_settings: Mapping[str, Any] = {}
        """The settings of the step that calls it, as plain data."""
        functions = [AgentTool.of(tool) for tool in tools or () if not isinstance(tool, str)]
        self.tools = {tool.name: tool for tool in functions}
        """The functions among the tools, by name."""
        names = [*(tool for tool in tools or () if isinstance(tool, str)), *self.tools]
        self.options = QueryOptions(tools=None if tools is None else names, max_turns=max_turns)

    @property
    def model(self) -> str | None:
        """The model of the agent, or an alias."""
        return self.settings.model

    @property
    def system(self) -> str | None:
        """The system prompt of the agent."""
        return self.settings.system

    def find_edited_folder(self, context: ExecutionContext, input: Any) -> str | None:
        """Return the folder in which it may edit files, relative to the project; None if it edits none."""
        try:
            request = AgentRequest.of(input)
            if not self.may_edit_files(context.session, request.settings, request.tools):
                return None
        except ValueError:
            return None  # its execution fails with this error
        return context.relative_directory(request.cwd or self.cwd)

    def may_edit_files(
        self, session: NodeRegistry | None, settings: AgentSettings, tools: Sequence[str] | None
    ) -> bool:
        """Return whether it may edit files that others use, with the settings and tools of a step."""
        if self.workspace == "shared":
            return False
        provider: Any = self.provider
        if isinstance(provider, str):
            provider = getattr(session, "providers", {}).get(provider, provider)
        step = settings.or_else(AgentSettings.of(self.step_settings)).or_else(self.settings)
        tools = self.options.tools if tools is None else tools
        return may_edit_files(provider, getattr(session, "config", None), step, tools)

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
            schema=request.schema,
            tools=self.options.tools if request.tools is None else request.tools,
            max_turns=request.max_turns or self.options.max_turns,
        )
        step = replace(request.settings, model=request.model).or_else(AgentSettings.of(self.step_settings))
        settings = step.or_else(self.settings)
        tools = find_tools(options.tools or (), self.tools, getattr(context.session, "tools", {}))
        check_tools([tool.name for tool in tools], options.tools or (), provider)
        prepare = partial(
            prepare_options,
            options=options,
            settings=settings,
            config=getattr(context.session, "config", None),
            trace=trace_environment(context),
            folder=request.cwd or "",
        )
        fallback = request.fallback or self.fallback
        return AgentConversation(
            context,
            self.id or "agent",
            provider,
            request,
            prepare,
            getattr(context.session, "provider_slots", None) or ProviderSlots(),
            None if fallback is None else partial(resolve_provider, fallback, context),
            self.thread == "fork",
            self.thread != "fresh" and not request.explicit,
            tools,
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
            cwd=self._working_directory(context, request.cwd or self.cwd),
            schema=request.schema or self.output_schema,
            resume=request.resume if request.explicit else previous_thread,
        )

    def _working_directory(self, context: ExecutionContext, directory: str | None) -> str | None:
        path = context.resolve_directory(directory)
        if path is None:
            return None
        if not path.is_dir():
            raise ValueError(
                f"The working directory of '{self.id or type(self).__name__}' does not exist: {path}."
                " Create it, or correct cwd."
            )
        return str(path)


def find_tools(
    names: Sequence[str], own: Mapping[str, AgentTool], registered: Mapping[str, AgentTool]
) -> list[AgentTool]:
    """Return the functions among the tools of a step; all other names are tools of the provider."""
    found = {name: own.get(name) or registered.get(name) for name in names}
    return [tool for tool in found.values() if tool is not None]


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
