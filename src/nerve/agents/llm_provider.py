"""LlmProvider: an LLM API whose tools Nerve executes; Nerve stores its conversations as files."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.agents.chunk_stream import EmitChunk, chunks_from_callback
from nerve.agents.launch import import_library
from nerve.agents.llm_client import LlmClient
from nerve.agents.mcp_client import open_mcp_tools
from nerve.agents.provider import (
    AssistantText,
    Capabilities,
    Chunk,
    HostTool,
    QueryOptions,
    Reasoning,
    ThreadStarted,
    ToolFailed,
    TurnFinished,
    TurnUsage,
    Unavailable,
)
from nerve.agents.rate_limits import failure_outcome
from nerve.agents.thread_files import ThreadFiles
from nerve.core.json_schema import parse_json_answer
from nerve.project.agent_settings import PERMISSION_MODES

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ToolCallPart
    from pydantic_ai.models import Model, ModelRequestParameters

MAX_REQUESTS = 100
"""Requests of a turn that calls tools, unless the step says otherwise."""
MAX_ERROR_CHARS = 4_000
"""Characters kept of an API error."""
SCHEMA_PROMPT = "Answer with one JSON value and nothing else. It must match this JSON Schema:\n"


class LlmProvider:
    """Query `vendor:model`, like `anthropic:claude-sonnet-5`; with a `base_url`, any compatible API.

    The folder `threads` stores the messages of a conversation: the prompt before it is sent, the answer
    before `TurnFinished`. An unanswered prompt stays the last message, and asking again does not repeat it.
    `openai:` is the Responses API or, with a `base_url`, the Chat Completions API, which other vendors
    support too; `openai-responses:` and `openai-chat:` select one. The API key is read from the variable
    `api_key_env` when a turn starts. `settings` are those of pydantic-ai: `max_tokens`, `temperature` …
    """

    name = "llm"
    capabilities = Capabilities(
        resume=True,
        fork=True,
        names_threads=True,
        schema=True,
        host_tools=True,
        ask_human=False,
        mcp=True,
        has_tools=False,
        modes=PERMISSION_MODES,
        effort=("minimal", "low", "medium", "high", "xhigh", "max"),
    )

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_key_env: str | None = None,
        threads: str | os.PathLike[str] = ".nerve/threads",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.base_url, self.api_key_env = model, base_url, api_key_env
        self.thread_files = ThreadFiles(Path(threads).absolute())
        self.settings = dict(settings or {})

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        return chunks_from_callback(LlmTurn(self, prompt, cwd, resume, options).run)


class LlmTurn:
    """One prompt and its answer."""

    def __init__(
        self, provider: LlmProvider, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> None:
        self.provider, self.prompt, self.cwd, self.options = provider, prompt, cwd, options
        self.resumed_thread = resume
        self.thread = resume if resume and not options.fork else options.thread or str(uuid.uuid4())
        self.has_native_schema = False  # whether the API itself enforces the schema

    async def run(self, emit: EmitChunk) -> None:
        await import_library("pydantic_ai.direct", "llm")
        messages = await self._load_messages()
        if messages is None:
            folder = self.provider.thread_files.folder
            return emit(
                failed_turn(
                    self.resumed_thread or "", f"Thread '{self.resumed_thread}' not found in {folder}"
                )
            )
        provider, options = self.provider, self.options
        client = LlmClient(
            options.model, provider.model, provider.base_url, provider.api_key_env, options.env
        )
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(client)
            try:
                servers = open_mcp_tools(options.mcp, self.cwd, options.record_tool)
                tools = {**options.host_tools, **await stack.enter_async_context(servers)}
            except Unavailable as error:
                return emit(failed_turn(self.thread, str(error)))
            return await self._answer(emit, client, model, messages, tools)

    async def _answer(
        self,
        emit: EmitChunk,
        client: LlmClient,
        model: Model,
        messages: list[ModelMessage],
        tools: Mapping[str, HostTool],
    ) -> None:
        """Send the prompt, and the results of tools, until the model answers without calling one."""
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        parameters = self._request_parameters(model, tools)
        if messages and isinstance(last := messages[-1], ModelRequest):
            is_same_prompt = [part.content for part in last.parts if isinstance(part, UserPromptPart)] == [
                self.prompt
            ]
            messages = messages[:-1] if is_same_prompt else messages
        prompt = ModelRequest([UserPromptPart(self.prompt)], instructions=self._system_prompt())
        messages = [*messages, prompt]
        await self._save_thread(messages)
        emit(ThreadStarted(self.thread))
        usage: TurnUsage | None = None
        max_requests = self.options.max_turns or MAX_REQUESTS
        for _ in range(max_requests):
            try:
                response = await self._stream_response(emit, model, messages, parameters)
            except Exception as error:
                return emit(replace(self._turn_of_error(error, client.api_key), usage=usage))
            usage = add_turn_usage(usage, self._turn_usage(response, client))
            emit(usage)
            if problem := truncation_reason(response):
                return emit(failed_turn(self.thread, problem, usage))
            if not response.tool_calls:
                break
            # Saved with the results: a call without its result cannot be continued.
            results = await self._call_tools(response.tool_calls, tools)
            messages = [*messages, response, ModelRequest(results, instructions=prompt.instructions)]
            await self._save_thread(messages)
        else:
            return emit(failed_turn(self.thread, f"The agent used its {max_requests} requests", usage))
        await self._save_thread([*messages, response])
        # The answer as a value if it is valid JSON; the caller validates it against the schema.
        answer = None if self.options.schema is None else parse_json_answer(response.text or "")[0]
        return emit(TurnFinished(self.thread, usage, structured=answer))

    async def _call_tools(
        self, calls: Sequence[ToolCallPart], tools: Mapping[str, HostTool]
    ) -> list[ModelRequestPart]:
        """Return the results of calls that the model has made at once; they run concurrently."""
        from pydantic_ai.messages import ToolReturnPart

        async def call_tool(call: ToolCallPart) -> ModelRequestPart:
            try:
                content, outcome = await execute_call(call, tools), "success"
            except ToolFailed as error:
                content, outcome = str(error), "failed"
            values: Any = {"outcome": outcome}
            return ToolReturnPart(call.tool_name, content, call.tool_call_id, **values)

        return await asyncio.gather(*map(call_tool, calls))

    async def _load_messages(self) -> list[ModelMessage] | None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        if self.resumed_thread is None:
            return []
        data = await asyncio.to_thread(self.provider.thread_files.read, self.resumed_thread)
        if data is not None:
            earlier: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(data)
            return earlier
        # The thread to resume is also the one to start: a crash came before its first write, so start it now.
        return [] if self.resumed_thread == self.options.thread else None

    async def _save_thread(self, messages: list[ModelMessage]) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        data = ModelMessagesTypeAdapter.dump_json(messages)
        await asyncio.to_thread(self.provider.thread_files.write, self.thread, data)

    def _system_prompt(self) -> str | None:
        system = self.options.system
        if self.options.schema is None or self.has_native_schema:
            return system
        form = SCHEMA_PROMPT + json.dumps(self.options.schema)
        return f"{system}\n\n{form}" if system else form

    def _request_parameters(self, model: Model, tools: Mapping[str, HostTool]) -> ModelRequestParameters:
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition
        from pydantic_ai.tools import ToolDefinition

        functions = [
            ToolDefinition(name=name, parameters_json_schema=dict(tool.schema), description=tool.description)
            for name, tool in tools.items()
        ]
        schema = self.options.schema
        self.has_native_schema = bool(
            schema and schema.get("type") == "object" and model.profile.get("supports_json_schema_output")
        )
        if schema is None or not self.has_native_schema:
            return ModelRequestParameters(function_tools=functions)
        form = OutputObjectDefinition(json_schema=dict(schema), name="answer")
        return ModelRequestParameters(function_tools=functions, output_mode="native", output_object=form)

    async def _stream_response(
        self, emit: EmitChunk, model: Model, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream

        settings: Any = dict(self.provider.settings)
        if self.options.effort is not None:
            settings["thinking"] = self.options.effort
        async with model_request_stream(
            model, messages, model_settings=settings, model_request_parameters=parameters
        ) as stream:
            async for event in stream:
                for chunk in chunks_of_stream_event(event):
                    emit(chunk)
            return stream.get()

    def _turn_of_error(self, error: Exception, key: str) -> TurnFinished:
        from pydantic_ai import exceptions

        text = (str(error) or type(error).__name__)[:MAX_ERROR_CHARS]
        text = text.replace(key, "[key]") if key else text
        if not isinstance(error, exceptions.AgentRunError | exceptions.UserError):
            raise error
        if isinstance(error, exceptions.ModelQuotaExceededError):
            return failed_turn(self.thread, text)
        after, status = getattr(error, "retry_after", None), getattr(error, "status_code", None)
        resets_at = None if after is None else time.time() + after
        is_limit = isinstance(error, exceptions.ModelRateLimitError | exceptions.ModelUnavailableError)
        outcome = failure_outcome(text, "llm", status, resets_at, is_limit)
        return TurnFinished(
            self.thread,
            outcome=outcome,
            error=text,
            resets_at=resets_at if outcome == "limited" else None,
        )

    def _turn_usage(self, response: ModelResponse, client: LlmClient) -> TurnUsage:
        model = client.model_label(response.model_name)
        request_usage = response.usage
        if request_usage.unmeasured_requests:
            return TurnUsage(model=model)
        read, write = request_usage.cache_read_tokens, request_usage.cache_write_tokens
        return TurnUsage(
            request_usage.input_tokens - read - write, request_usage.output_tokens, read, write, model=model
        )


async def execute_call(call: ToolCallPart, tools: Mapping[str, HostTool]) -> str:
    """Return the output of a call; ToolFailed for an unknown tool, or arguments that are not an object."""
    if (tool := tools.get(call.tool_name)) is None:
        raise ToolFailed(f"Unknown tool '{call.tool_name}'. Available: {', '.join(tools) or 'none'}")
    try:
        arguments = call.args_as_dict(raise_if_invalid=True)
    except ValueError as error:
        raise ToolFailed(f"The arguments are not a JSON object: {error}") from None
    return await tool.call(arguments)


def add_turn_usage(total: TurnUsage | None, more: TurnUsage) -> TurnUsage:
    """Return the usage of several requests; what is unknown of one is unknown of all."""
    if total is None:
        return more
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    pairs = {name: (getattr(total, name), getattr(more, name)) for name in names}
    sums: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
    return replace(more, **sums)


def chunks_of_stream_event(event: Any) -> list[Chunk]:
    """Return the chunks of a stream event: partial text, then the complete text; reasoning in parts."""
    from pydantic_ai import messages as m

    match event:
        case m.PartStartEvent(part=m.TextPart(content=text)) if text:
            return [AssistantText(text, partial=True)]
        case m.PartDeltaEvent(delta=m.TextPartDelta(content_delta=text)) if text:
            return [AssistantText(text, partial=True)]
        case m.PartEndEvent(part=m.TextPart(content=text)) if text:
            return [AssistantText(text)]
        case m.PartStartEvent(part=m.ThinkingPart(content=text)) if text:
            return [Reasoning(text)]
        case m.PartDeltaEvent(delta=m.ThinkingPartDelta(content_delta=str(text))) if text:
            return [Reasoning(text)]
    return []


def truncation_reason(response: ModelResponse) -> str:
    """Return why the answer is incomplete, or an empty string."""
    match response.finish_reason:
        case "stop" | "tool_call":
            return "" if response.text or response.tool_calls else "The model ended without an answer"
        case "length":
            return "The answer exceeded the token limit; raise max_tokens in the settings"
        case "content_filter":
            return "The vendor's content filter stopped the answer"
        case None:
            return "The answer is incomplete"
    return f"The model ended with finish reason '{response.finish_reason}'"


def failed_turn(thread: str, error: str, usage: TurnUsage | None = None) -> TurnFinished:
    return TurnFinished(thread, usage, outcome="failed", error=error)
