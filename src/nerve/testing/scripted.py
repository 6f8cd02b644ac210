"""ScriptedProvider: an agent with scripted answers, free of cost and with a memory of its calls."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from nerve.agents.provider import (
    AssistantText,
    Capabilities,
    Chunk,
    HostTool,
    PlanUpdate,
    QueryOptions,
    Reasoning,
    ThreadStarted,
    ToolCall,
    ToolFailed,
    ToolUpdate,
    TurnFinished,
    TurnUsage,
)
from nerve.lazy_dataclass import dataclass

Answer = Any
"""A text; a chunk or a list of chunks; or an exception to raise.

A chunk is a text, `{"text": …}`, `{"tool": name, "input": {…}}`, `{"usage": {…}}`, `{"delay": seconds}`, or
a `nerve.agents.Chunk`.
"""
Answers = Sequence[Answer] | Mapping[str, Answer] | Callable[["RecordedQuery"], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """One call of the provider."""

    prompt: str
    cwd: str | None = None
    resume: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    thread: str = ""
    """The conversation it belongs to: the resumed one, or a new one, also for a fork."""


class ScriptedProvider:
    """Answer from a list in order, by the first pattern that matches the prompt, or by a function.

    The function may be async. Patterns are regular expressions, tried in order. A prompt without an answer
    raises an error that contains it. `calls` holds every call, recorded before it is answered. New
    conversations and forks are named `thread-1`, `thread-2` and so on. To resume one after a crash, answer
    with `ThreadStarted(call.thread)`.
    """

    capabilities = Capabilities(resume=True, fork=True, host_tools=True, ask_human=False, any_settings=True)

    def __init__(self, answers: Answers, name: str = "scripted") -> None:
        if isinstance(answers, str) or not (callable(answers) or isinstance(answers, Mapping | Sequence)):
            raise TypeError(f"answers must be a list, a dict of patterns or a function, got {answers!r}")
        self.name = name
        self.calls: list[RecordedQuery] = []
        self._thread_count = 0
        self._answers: Callable[[RecordedQuery], Answer]
        if callable(answers):
            self._answers = answers
        elif isinstance(answers, Mapping):
            self._answers = ScriptedPatterns(answers)
        else:
            self._answers = ScriptedTurns(answers)

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        """Yield the scripted answer to a prompt, in the thread `resume` or in a new one."""
        thread = resume
        if thread is None or options.fork:
            self._thread_count += 1
            thread = f"thread-{self._thread_count}"
        call = RecordedQuery(prompt, cwd, resume, options.explicit_settings(), thread)
        self.calls.append(call)
        return self._answer_query(call, options.host_tools)

    async def _answer_query(self, call: RecordedQuery, tools: Mapping[str, HostTool]) -> AsyncIterator[Chunk]:
        answer = self._answers(call)
        if inspect.isawaitable(answer):
            answer = await answer
        for chunk in scripted_chunks(answer, call.thread):
            if isinstance(chunk, float):
                await asyncio.sleep(chunk)
            elif isinstance(chunk, ToolCall) and (tool := tools.get(chunk.name)) is not None:
                with suppress(ToolFailed):  # recorded, as for any agent
                    await tool.call(chunk.input)
            else:
                yield chunk


class ScriptedTurns:
    """Gives the answers in order."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers = list(answers)
        self._used_count = 0

    def __call__(self, call: RecordedQuery) -> Answer:
        if self._used_count == len(self._answers):
            raise LookupError(
                f"All {self._used_count} scripted answers are used up. The prompt was: {call.prompt}"
            )
        self._used_count += 1
        return self._answers[self._used_count - 1]


class ScriptedPatterns:
    """Gives the answer of the first pattern that matches the prompt."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = [(compile_prompt_pattern(pattern), answer) for pattern, answer in answers.items()]

    def __call__(self, call: RecordedQuery) -> Answer:
        for pattern, answer in self._answers:
            if pattern.search(call.prompt):
                return answer
        known = ", ".join(repr(pattern.pattern) for pattern, _ in self._answers)
        raise LookupError(
            f"No scripted answer matches, the patterns are {known}. The prompt was: {call.prompt}"
        )


def compile_prompt_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"'{pattern}' is not a valid regular expression: {error}") from None


def scripted_chunks(answer: Answer, thread: str) -> Iterator[Chunk | float]:
    """Yield the chunks of an answer, and the seconds between them; a missing `TurnFinished` is added."""
    usage: Mapping[str, Any] | None = None
    for part in answer if isinstance(answer, list | tuple) else [answer]:
        if isinstance(part, dict) and part.keys() == {"usage"}:
            usage = part["usage"]
            continue
        if isinstance(part, dict) and part.keys() == {"delay"}:
            yield float(part["delay"])
            continue
        chunk = to_scripted_chunk(part)
        yield chunk
        if isinstance(chunk, TurnFinished):
            return
    yield TurnFinished(thread, usage)


def to_scripted_chunk(part: Any) -> Chunk:
    match part:
        case Exception():
            raise part
        case (
            ThreadStarted()
            | AssistantText()
            | Reasoning()
            | ToolCall()
            | ToolUpdate()
            | PlanUpdate()
            | TurnUsage()
            | TurnFinished()
        ):
            return part
        case str():
            return AssistantText(part)
        case {"text": str(text), **rest} if not rest:
            return AssistantText(text)
        case {"tool": str(name), "input": dict(tool_input), **rest} if not rest:
            return ToolCall(name, tool_input)
        case {"tool": str(name), **rest} if not rest:
            return ToolCall(name)
    raise TypeError(
        f"Scripted answer must be a string, a chunk, a list of chunks or an exception, got {part!r}."
        " For an agent that answers with JSON, pass the JSON text"
    )
