"""AgentNode: a prompt answered by an agent, as a leaf."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from nerve.agents.port import Assistant, Chunk, Done, Options, Provider, Tool
from nerve.agents.request import Request
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.values import encode
from nerve.errors import NerveError

CHUNK_LIMIT = 100_000
"""Characters of one message or tool call that an event keeps."""
OUTPUT_LIMIT = 1_000_000
"""Characters of the answer that the result keeps."""


class AgentEnded(NerveError):
    """The agent ended without saying that it was done."""


class AgentNode(Node):
    """Asks the provider, tells watchers every message and tool call, and gives the messages as one text.

    The input is a prompt, or a request with `prompt`, `resume`, `model`, `cwd` and `artifacts`, or any value.
    Cancelling it stops the agent.
    """

    takes_request: ClassVar[bool] = True

    def __init__(
        self,
        id: str | None = None,
        session: Names | None = None,
        provider: Provider | None = None,
        model: str | None = None,
        system: str | None = None,
        cwd: str | None = None,
        **policy: Any,
    ) -> None:
        if provider is None or not callable(getattr(provider, "query", None)):
            raise ValueError(f"an agent needs a provider with a method query(), not {provider!r}")
        super().__init__(id, session, **policy)
        self.provider = provider
        self.model, self.system, self.cwd = model, system, cwd

    async def execute(self, context: ExecutionContext) -> Result:
        said = Said(context)
        try:
            request = self._request(context)
            said.model = request.model
            await said.listen(self._ask(request))
        except Exception as error:
            result = Result.raised(error)
            result.settled = "error"
            result["output"] = said.output
        else:
            result = Result.ok(said.output)
        name = getattr(self.provider, "name", None) or type(self.provider).__name__
        result["attributes"] = {"provider": name, **said.attributes()}
        return result

    def _request(self, context: ExecutionContext) -> Request:
        request = Request.of(context.input)
        changed = {key: context.overrides[key] for key in ("prompt", "model") if key in context.overrides}
        request = replace(request, **changed)
        if not request.prompt.strip():
            raise ValueError(f"the agent '{self.id or type(self).__name__}' was given no prompt")
        return replace(request, model=request.model or self.model, cwd=request.cwd or self.cwd)

    def _ask(self, request: Request) -> AsyncIterator[Chunk]:
        if request.artifacts:
            Path(request.cwd or ".", request.artifacts).mkdir(parents=True, exist_ok=True)
        options = Options(model=request.model, system=self.system)
        return self.provider.query(request.prompt, request.cwd, request.resume, options)


@dataclass(slots=True)
class Said:
    """What an agent has said so far."""

    context: ExecutionContext
    model: str | None = None
    messages: list[str] = field(default_factory=list)
    tools: int = 0
    done: Done | None = None
    size: int = 0
    dropped: int = 0

    async def listen(self, chunks: AsyncIterator[Chunk]) -> None:
        """Take in what is said until the agent is done; the iterator is closed in any case."""
        try:
            async for chunk in chunks:
                self.take(chunk)
                if self.done is not None:
                    return
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        raise AgentEnded("the agent ended without saying that it was done; what it said may be incomplete")

    def take(self, chunk: Chunk) -> None:
        match chunk:
            case Assistant(content):
                self.keep(content)
                self.context.emit("output_chunk", {"stream": "assistant", **bounded(content)})
            case Tool(name, given):
                self.tools += 1
                self.context.emit("tool_call", {"name": name, "input": bounded_input(dict(given))})
            case Done():
                self.done = chunk
            case _:
                raise TypeError(f"a provider gives Assistant, Tool and Done, not {chunk!r:.200}")

    def keep(self, content: str) -> None:
        room = max(0, OUTPUT_LIMIT - self.size)
        self.dropped += max(0, len(content) - room)
        self.size += len(content)
        if room:
            self.messages.append(content[:room])

    @property
    def output(self) -> str:
        return "\n\n".join(self.messages)

    def attributes(self) -> dict[str, Any]:
        said: dict[str, Any] = {"thread": None, "model": self.model, "tools": self.tools}
        if self.done is not None:
            said["thread"] = self.done.thread
            if self.done.usage is not None:
                said["usage"] = dict(self.done.usage)
        if self.dropped:
            said["dropped_characters"] = self.dropped
        return said


def bounded(text: str) -> dict[str, Any]:
    """A text as an event keeps it, and how much of it was left out."""
    if len(text) <= CHUNK_LIMIT:
        return {"text": text}
    return {"text": text[:CHUNK_LIMIT], "dropped_characters": len(text) - CHUNK_LIMIT}


def bounded_input(given: dict[str, Any]) -> dict[str, Any]:
    text = encode(given)
    return given if len(text) <= CHUNK_LIMIT else bounded(text)
