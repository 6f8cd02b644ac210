"""LlmProvider: a model behind an API, asked without any tools; its conversations are files of ours."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.agents.connection import Connection, load
from nerve.agents.history import History
from nerve.agents.port import (
    Assistant,
    Begun,
    Capabilities,
    Chunk,
    Done,
    Options,
    Thought,
    Usage,
)
from nerve.agents.stream import Tell, told
from nerve.core.schemas import read_answer

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

ERROR = 4_000
"""Characters of an API's error that are kept."""
FORM = "Answer with one JSON value and nothing else. It must fit this JSON Schema:\n"


class LlmProvider:
    """Asks `vendor:model`, as in `anthropic:claude-sonnet-5`; with a `base_url` any API of that kind.

    The messages of a conversation are kept in the folder `threads`: the prompt before it is sent, the answer
    before `Done`. A prompt that was not answered stays the last one, and is not there twice if asked again.
    `openai:` is the Responses API, and with a `base_url` the Chat Completions API, which others speak too;
    `openai-responses:` and `openai-chat:` choose. The key is taken from the variable `api_key_env` when a
    turn starts. `settings` are those of pydantic-ai, as `max_tokens` and `temperature`.
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
        self.history = History(Path(threads).absolute())
        self.settings = dict(settings or {})

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        return told(Turn(self, prompt, resume, options).run)


class Turn:
    """One prompt and its answer."""

    def __init__(self, provider: LlmProvider, prompt: str, resume: str | None, options: Options) -> None:
        self.provider, self.prompt, self.options = provider, prompt, options
        self.resumed = resume
        self.thread = resume if resume and not options.fork else options.thread or str(uuid.uuid4())
        self.native = False  # whether the API itself sees to the form of the answer

    async def run(self, tell: Tell) -> None:
        await load()
        messages = await self._earlier()
        if messages is None:
            where = self.provider.history.folder
            return tell(failed(self.resumed or "", f"there is no thread '{self.resumed}' in {where}"))
        provider, options = self.provider, self.options
        connection = Connection(
            options.model, provider.model, provider.base_url, provider.api_key_env, options.env
        )
        async with connection as model:
            parameters = self._parameters(model)
            messages = self._asked(messages)
            await self._keep(messages)
            tell(Begun(self.thread))
            try:
                response = await self._answer(tell, model, messages, parameters)
            except Exception as error:
                return tell(self._failed(error, connection.key))
        if problem := unfinished(response):
            return tell(failed(self.thread, problem, self._usage(response, connection)))
        await self._keep([*messages, response])
        usage = self._usage(response, connection)
        return tell(Done(self.thread, usage, structured=self._structured(response)))

    async def _earlier(self) -> list[ModelMessage] | None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        if self.resumed is None:
            return []
        data = await asyncio.to_thread(self.provider.history.read, self.resumed)
        if data is not None:
            earlier: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(data)
            return earlier
        # Asked to go on with the thread under the name it was to get: it was never begun, so it is now.
        return [] if self.resumed == self.options.thread else None

    async def _keep(self, messages: list[ModelMessage]) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        data = ModelMessagesTypeAdapter.dump_json(messages)
        await asyncio.to_thread(self.provider.history.write, self.thread, data)

    def _asked(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        if messages and isinstance(last := messages[-1], ModelRequest):
            same = [part.content for part in last.parts if isinstance(part, UserPromptPart)] == [self.prompt]
            messages = messages[:-1] if same else messages
        return [*messages, ModelRequest([UserPromptPart(self.prompt)], instructions=self._system())]

    def _system(self) -> str | None:
        system = self.options.system
        if self.options.schema is None or self.native:
            return system
        form = FORM + json.dumps(self.options.schema)
        return f"{system}\n\n{form}" if system else form

    def _parameters(self, model: Model) -> ModelRequestParameters:
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        schema = self.options.schema
        self.native = bool(
            schema and schema.get("type") == "object" and model.profile.get("supports_json_schema_output")
        )
        if schema is None or not self.native:
            return ModelRequestParameters()
        form = OutputObjectDefinition(json_schema=dict(schema), name="answer")
        return ModelRequestParameters(output_mode="native", output_object=form)

    async def _answer(
        self, tell: Tell, model: Model, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream

        settings: Any = self.provider.settings
        async with model_request_stream(
            model, messages, model_settings=settings, model_request_parameters=parameters
        ) as stream:
            async for event in stream:
                for chunk in chunks(event):
                    tell(chunk)
            return stream.get()

    def _failed(self, error: Exception, key: str) -> Done:
        from pydantic_ai import exceptions

        text = (str(error) or type(error).__name__)[:ERROR]
        text = text.replace(key, "[key]") if key else text
        limits = exceptions.ModelRateLimitError | exceptions.ModelQuotaExceededError
        if isinstance(error, limits) or getattr(error, "status_code", None) == 429:
            after = getattr(error, "retry_after", None)
            resets_at = None if after is None else time.time() + after
            return Done(self.thread, outcome="limited", error=text, resets_at=resets_at)
        if isinstance(error, exceptions.AgentRunError | exceptions.UserError):
            return failed(self.thread, text)
        raise error

    def _usage(self, response: ModelResponse, connection: Connection) -> Usage:
        model = connection.label(response.model_name)
        took = response.usage
        if took.unmeasured_requests:
            return Usage(model=model)
        read, write = took.cache_read_tokens, took.cache_write_tokens
        return Usage(took.input_tokens - read - write, took.output_tokens, read, write, model=model)

    def _structured(self, response: ModelResponse) -> Any:
        """The answer as a value, if it is one; whether it fits the schema is for others to say."""
        if self.options.schema is None:
            return None
        return read_answer(response.text or "")[0]


def chunks(event: Any) -> list[Chunk]:
    """What an event of the stream says: pieces of a text, then the whole of it; thoughts in pieces."""
    from pydantic_ai import messages as m

    match event:
        case m.PartStartEvent(part=m.TextPart(content=text)) if text:
            return [Assistant(text, partial=True)]
        case m.PartDeltaEvent(delta=m.TextPartDelta(content_delta=text)) if text:
            return [Assistant(text, partial=True)]
        case m.PartEndEvent(part=m.TextPart(content=text)) if text:
            return [Assistant(text)]
        case m.PartStartEvent(part=m.ThinkingPart(content=text)) if text:
            return [Thought(text)]
        case m.PartDeltaEvent(delta=m.ThinkingPartDelta(content_delta=str(text))) if text:
            return [Thought(text)]
    return []


def unfinished(response: ModelResponse) -> str:
    """Why the answer is not a whole one, if it is not."""
    match response.finish_reason:
        case "stop" | "tool_call":
            return "" if response.text else "the model ended without an answer"
        case "length":
            return "the answer was cut off at the limit of its length; raise max_tokens in the settings"
        case "content_filter":
            return "the answer was stopped by the vendor's content filter"
        case None:
            return "the answer broke off"
    return f"the model ended with '{response.finish_reason}'"


def failed(thread: str, error: str, usage: Usage | None = None) -> Done:
    return Done(thread, usage, outcome="failed", error=error)
