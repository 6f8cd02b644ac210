"""Routing: what the user wrote goes to an agent, or is decided offline."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from nerve.agents.provider import Chunk, Provider, QueryOptions
from nerve.router.answer_parsing import validate_decision_inputs
from nerve.router.decision import Candidate, ConversationDecision, Decision, QuestionDecision
from nerve.router.keyword_router import choose_by_prefix, route_by_keywords
from nerve.router.prompt import answer_schema, build_router_prompt
from nerve.router.response_reader import ResponseReader

ROUTING_OPTIONS = QueryOptions(tools=())
"""Deciding needs no tools."""
COMMAND_PATTERN = re.compile(r"/[a-z][\w-]*(?=\s|$)", re.IGNORECASE)


async def route(
    text: str,
    workflows: Iterable[Candidate],
    provider: Provider | None = None,
    *,
    cwd: str | None = None,
    resume: str | None = None,
    options: QueryOptions = ROUTING_OPTIONS,
) -> Decision:
    """What is to be done about a text; without a provider it is decided offline.

    `resume` goes on with the agent's conversation, by the `thread` of an earlier decision.
    """
    async with aclosing(stream(text, workflows, provider, cwd=cwd, resume=resume, options=options)) as parts:
        async for part in parts:
            if not isinstance(part, str):
                return part
    raise AssertionError("a stream ends with its decision")


async def stream(
    text: str,
    workflows: Iterable[Candidate],
    provider: Provider | None = None,
    *,
    cwd: str | None = None,
    resume: str | None = None,
    options: QueryOptions = ROUTING_OPTIONS,
) -> AsyncGenerator[str | Decision, None]:
    """The same while it happens: what may be shown to the user, piece by piece, and last the decision.

    Put together, the pieces are the reply of a conversation.
    """
    candidates = list(workflows)
    if (command := COMMAND_PATTERN.match(text)) is not None:
        yield unknown_command_question(text, command[0])
        return
    if (prefixed_decision := choose_by_prefix(text, candidates)) is not None:
        yield validate_decision_inputs(prefixed_decision, candidates)
        return
    if provider is None:
        decision = validate_decision_inputs(route_by_keywords(text, candidates), candidates)
        if isinstance(decision, ConversationDecision):
            yield decision.reply
        yield decision
        return
    async with aclosing(ask_routing_agent(text, candidates, provider, cwd, resume, options)) as parts:
        async for part in parts:
            yield part


async def ask_routing_agent(
    text: str,
    candidates: Sequence[Candidate],
    provider: Provider,
    cwd: str | None,
    resume: str | None,
    options: QueryOptions,
) -> AsyncGenerator[str | Decision, None]:
    """What the agent says, and decides."""
    reader = ResponseReader(candidates, expects_form=bool(candidates) and provider.capabilities.schema)
    if reader.expects_form:
        options = replace(options, schema=answer_schema(candidates))
    prompt = build_router_prompt(text, candidates, reader.expects_form)
    try:
        async with closing_chunks(provider.query(prompt, cwd, resume, options)) as chunks:
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


@asynccontextmanager
async def closing_chunks(chunks: AsyncIterator[Chunk]) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Whatever happens, the agent is not left running."""
    try:
        yield chunks
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()


def unknown_command_question(text: str, command: str) -> QuestionDecision:
    """Commands are the user's own and are never decided by an agent."""
    question = f"'{command}' is a command, and is not known here. Which workflow is meant?"
    return QuestionDecision(question, text=text, by="words", reason="a text that begins with / is a command")
