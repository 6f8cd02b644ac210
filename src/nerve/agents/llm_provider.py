"""LlmProvider: an LLM API without tools; Nerve stores its conversations as files."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.agents.chunk_stream import EmitChunk, chunks_from_callback
from nerve.agents.launch import import_library
from nerve.agents.llm_client import LlmClient
from nerve.agents.provider import (
    AssistantText,
    Capabilities,
    Chunk,
    QueryOptions,
    Reasoning,
    ThreadStarted,
    TurnFinished,
    TurnUsage,
)
from nerve.agents.thread_files import ThreadFiles
from nerve.core.json_schema import parse_json_answer

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

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
    capabilities = Capabilities(resume=True, fork=True, names_threads=True, schema=True)

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
        return chunks_from_callback(LlmTurn(self, prompt, resume, options).run)


class LlmTurn:
    """One prompt and its answer."""

    def __init__(self, provider: LlmProvider, prompt: str, resume: str | None, options: QueryOptions) -> None:
        self.provider, self.prompt, self.options = provider, prompt, options
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
        async with client as model:
            parameters = self._request_parameters(model)
            from pydantic_ai.messages import ModelRequest, UserPromptPart

            if messages and isinstance(last := messages[-1], ModelRequest):
                is_same_prompt = [
                    part.content for part in last.parts if isinstance(part, UserPromptPart)
                ] == [self.prompt]
                messages = messages[:-1] if is_same_prompt else messages
            messages = [
                *messages,
                ModelRequest([UserPromptPart(self.prompt)], instructions=self._system_prompt()),
            ]
            await self._save_thread(messages)
            emit(ThreadStarted(self.thread))
            try:
                response = await self._stream_response(emit, model, messages, parameters)
            except Exception as error:
                return emit(self._turn_of_error(error, client.api_key))
        if problem := truncation_reason(response):
            return emit(failed_turn(self.thread, problem, self._turn_usage(response, client)))
        await self._save_thread([*messages, response])
        usage = self._turn_usage(response, client)
        # The answer as a value if it is valid JSON; the caller validates it against the schema.
        answer = None if options.schema is None else parse_json_answer(response.text or "")[0]
        return emit(TurnFinished(self.thread, usage, structured=answer))

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

    def _request_parameters(self, model: Model) -> ModelRequestParameters:
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        schema = self.options.schema
        self.has_native_schema = bool(
            schema and schema.get("type") == "object" and model.profile.get("supports_json_schema_output")
        )
        if schema is None or not self.has_native_schema:
            return ModelRequestParameters()
        form = OutputObjectDefinition(json_schema=dict(schema), name="answer")
        return ModelRequestParameters(output_mode="native", output_object=form)

    async def _stream_response(
        self, emit: EmitChunk, model: Model, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream

        settings: Any = self.provider.settings
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
        limits = exceptions.ModelRateLimitError | exceptions.ModelQuotaExceededError
        if isinstance(error, limits) or getattr(error, "status_code", None) == 429:
            after = getattr(error, "retry_after", None)
            resets_at = None if after is None else time.time() + after
            return TurnFinished(self.thread, outcome="limited", error=text, resets_at=resets_at)
        if isinstance(error, exceptions.AgentRunError | exceptions.UserError):
            return failed_turn(self.thread, text)
        raise error

    def _turn_usage(self, response: ModelResponse, client: LlmClient) -> TurnUsage:
        model = client.model_label(response.model_name)
        request_usage = response.usage
        if request_usage.unmeasured_requests:
            return TurnUsage(model=model)
        read, write = request_usage.cache_read_tokens, request_usage.cache_write_tokens
        return TurnUsage(
            request_usage.input_tokens - read - write, request_usage.output_tokens, read, write, model=model
        )


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
            return "" if response.text else "The model ended without an answer"
        case "length":
            return "The answer exceeded the token limit; raise max_tokens in the settings"
        case "content_filter":
            return "The vendor's content filter stopped the answer"
        case None:
            return "The answer is incomplete"
    return f"The model ended with finish reason '{response.finish_reason}'"


def failed_turn(thread: str, error: str, usage: TurnUsage | None = None) -> TurnFinished:
    return TurnFinished(thread, usage, outcome="failed", error=error)
