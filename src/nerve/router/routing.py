"""Route a message with an agent, or by keywords without one."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from nerve.agents.provider import Chunk, Provider, QueryOptions
from nerve.lazy_dataclass import dataclass
from nerve.router.agent_answer import ResponseReader, validate_decision_inputs
from nerve.router.decision import Candidate, ConversationDecision, Decision, QuestionDecision
from nerve.router.keyword_router import choose_by_prefix, route_by_keywords
from nerve.router.prompt import answer_schema, build_router_prompt

ROUTING_OPTIONS = QueryOptions(tools=())
"""The routing agent gets no tools."""
COMMAND_PATTERN = re.compile(r"/[a-z][\w-]*(?=\s|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Router:
    """Routes messages with an agent, or by keywords without one; each message has the current candidates."""

    offers: Callable[[], Iterable[Candidate]]
    provider: Provider | None = None
    cwd: str | None = None
    options: QueryOptions = ROUTING_OPTIONS

    async def route(self, text: str, resume: str | None = None) -> Decision:
        """Return the decision about a message.

        `resume` continues the conversation of an earlier decision, by its `thread`.
        """
        async with aclosing(self.stream(text, resume)) as parts:
            async for part in parts:
                if not isinstance(part, str):
                    return part
        raise AssertionError("The stream must end with a decision")

    async def stream(self, text: str, resume: str | None = None) -> AsyncGenerator[str | Decision, None]:
        """Yield the text to show to the user as it arrives, and finally the decision.

        The concatenated text is the reply of a `ConversationDecision`.
        """
        candidates = list(self.offers())
        if (command := COMMAND_PATTERN.match(text)) is not None:
            yield unknown_command_question(text, command[0])
        elif (prefixed_decision := choose_by_prefix(text, candidates)) is not None:
            yield validate_decision_inputs(prefixed_decision, candidates)
        elif self.provider is None:
            decision = validate_decision_inputs(route_by_keywords(text, candidates), candidates)
            if isinstance(decision, ConversationDecision):
                yield decision.reply
            yield decision
        else:
            async with aclosing(self._ask_agent(text, candidates, self.provider, resume)) as parts:
                async for part in parts:
                    yield part

    async def _ask_agent(
        self, text: str, candidates: Sequence[Candidate], provider: Provider, resume: str | None
    ) -> AsyncGenerator[str | Decision, None]:
        """Yield the text of the agent, and finally its decision."""
        reader = ResponseReader(candidates, expects_form=bool(candidates) and provider.capabilities.schema)
        schema = answer_schema(candidates) if reader.expects_form else self.options.schema
        prompt = build_router_prompt(text, candidates, reader.expects_form)
        try:
            query = provider.query(prompt, self.cwd, resume, replace(self.options, schema=schema))
            async with closing_chunks(query) as chunks:
                async for chunk in chunks:
                    if piece := reader.feed(chunk):
                        yield piece
                    if reader.done is not None:
                        break
        except Exception as error:
            reader.error = f"{type(error).__name__}: {error}"
        if piece := reader.finish():
            yield piece
        decision = reader.decide(text, provider.name)
        if isinstance(decision, ConversationDecision) and not reader.shown_text:
            yield decision.reply
        yield decision


async def route(
    text: str,
    workflows: Iterable[Candidate],
    provider: Provider | None = None,
    *,
    resume: str | None = None,
    **settings: Any,
) -> Decision:
    """Return the decision about one message; `settings` are the `cwd` and the `options` of `Router`."""
    return await Router(lambda: workflows, provider, **settings).route(text, resume)


def stream(
    text: str, workflows: Iterable[Candidate], provider: Provider | None = None
) -> AsyncGenerator[str | Decision, None]:
    """Yield the text to show for one message as it arrives, and finally the decision."""
    return Router(lambda: workflows, provider).stream(text)


@asynccontextmanager
async def closing_chunks(chunks: AsyncIterator[Chunk]) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Close the stream of the agent on exit, so that the agent does not keep running."""
    try:
        yield chunks
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()


def unknown_command_question(text: str, command: str) -> QuestionDecision:
    """Return the question about an unknown command; an agent never handles commands."""
    question = f"Unknown command '{command}'. Which workflow do you mean?"
    return QuestionDecision(
        question, text=text, by="words", reason="a message that starts with / is a command"
    )
