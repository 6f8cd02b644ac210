"""Routing: what the user wrote goes to an agent, or is decided offline."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from nerve.agents.port import Chunk, Options, Provider
from nerve.router.decision import Conversation, Decision, Offered, Question
from nerve.router.form import held_to_inputs
from nerve.router.hearing import Hearing
from nerve.router.prompt import answer_schema, build_router_prompt
from nerve.router.words import choose_by_prefix, decide_by_words

OPTIONS = Options(tools=())
"""Deciding needs no tools."""
COMMAND = re.compile(r"/[a-z][\w-]*(?=\s|$)", re.IGNORECASE)


async def route(
    text: str,
    workflows: Iterable[Offered],
    provider: Provider | None = None,
    *,
    cwd: str | None = None,
    resume: str | None = None,
    options: Options = OPTIONS,
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
    workflows: Iterable[Offered],
    provider: Provider | None = None,
    *,
    cwd: str | None = None,
    resume: str | None = None,
    options: Options = OPTIONS,
) -> AsyncGenerator[str | Decision, None]:
    """The same while it happens: what may be shown to the user, piece by piece, and last the decision.

    Put together, the pieces are the reply of a conversation.
    """
    offered = list(workflows)
    if (command := COMMAND.match(text)) is not None:
        yield not_routed(text, command[0])
        return
    if (named := choose_by_prefix(text, offered)) is not None:
        yield held_to_inputs(named, offered)
        return
    if provider is None:
        decision = held_to_inputs(decide_by_words(text, offered), offered)
        if isinstance(decision, Conversation):
            yield decision.reply
        yield decision
        return
    async with aclosing(asked(text, offered, provider, cwd, resume, options)) as parts:
        async for part in parts:
            yield part


async def asked(
    text: str,
    offered: Sequence[Offered],
    provider: Provider,
    cwd: str | None,
    resume: str | None,
    options: Options,
) -> AsyncGenerator[str | Decision, None]:
    """What the agent says, and decides."""
    hearing = Hearing(offered, form=bool(offered) and provider.capabilities.schema)
    if hearing.form:
        options = replace(options, schema=answer_schema(offered))
    prompt = build_router_prompt(text, offered, hearing.form)
    try:
        async with closing(provider.query(prompt, cwd, resume, options)) as chunks:
            async for chunk in chunks:
                if piece := hearing.take(chunk):
                    yield piece
                if hearing.done is not None:
                    break
    except Exception as error:
        hearing.failed = f"{type(error).__name__}: {error}"
    if piece := hearing.end():
        yield piece
    decision = hearing.decide(text, provider.name)
    if isinstance(decision, Conversation) and not hearing.shown:
        yield decision.reply
    yield decision


@asynccontextmanager
async def closing(chunks: AsyncIterator[Chunk]) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Whatever happens, the agent is not left running."""
    try:
        yield chunks
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()


def not_routed(text: str, command: str) -> Question:
    """Commands are the user's own and are never decided by an agent."""
    asked = f"'{command}' is a command, and is not known here. Which workflow is meant?"
    return Question(asked, text=text, by="words", reason="a text that begins with / is a command")
