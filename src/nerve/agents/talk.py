"""A talk with an agent: turns in one conversation, until there is an answer or a reason why not."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nerve.agents.accounts import Accounts, Seat
from nerve.agents.answers import TRIES, once_more, read_answer, with_schema
from nerve.agents.asking import Asking
from nerve.agents.ledger import UNTOLD, added, entry
from nerve.agents.permissions import Permissions
from nerve.agents.port import Capabilities, Done, Options, Provider
from nerve.agents.request import Request
from nerve.agents.said import Said
from nerve.core.nodes.context import ExecutionContext
from nerve.core.paths import inside
from nerve.core.result import Result
from nerve.core.schemas import problem_of

INTERRUPTED = (
    "You were interrupted before you were done. Go on with your task; if it is done already, give your final"
    " answer again. The task was:\n\n"
)
MEANWHILE = "While you worked on it, you were told this, too:"


@dataclass(slots=True)
class Talk:
    """What one step asks of an agent, and what has come of it so far."""

    context: ExecutionContext
    name: str
    provider: Provider
    request: Request
    options: Options
    permissions: Permissions
    accounts: Accounts
    fallback: Callable[[], Provider] | None = None
    """Who is asked while the provider is limited; found when it is needed."""
    thread: str | None = None
    begun_again: str | None = None
    """The conversation that a crash cut off: it is gone on with, or begun if there is nothing of it."""
    usage: dict[str, Any] = field(default_factory=dict)
    turns: int = 0
    """How often the agent was asked, in earlier attempts too."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    seat: Seat | None = None
    times: int = 0
    """How often the provider had refused when it was asked last."""

    async def result(self) -> Result:
        """The answer, in the form that was asked for."""
        schema = self.request.schema
        prompt = self.begin()
        for _ in range(TRIES if schema else 1):
            worded = with_schema(prompt, schema) if schema and not self.can.schema else prompt
            done = await self.answered(worded)
            if done.outcome != "completed":
                await self.keep_count()
                return self.ended(Result.failed(done.error or done.outcome, OUTCOMES[done.outcome]))
            if schema is None:
                return self.ended(Result.ok())
            answer, problem = (
                (done.structured, "") if done.structured is not None else read_answer(self.output)
            )
            problem = problem or problem_of(answer, schema)
            if not problem:
                return self.ended(Result.ok(answer))
            await self.keep_count()
            prompt = once_more(problem, schema)
            if not self.can.resume:
                prompt = f"{self.request.prompt}\n\n{prompt}"
        return self.ended(Result.failed(f"the answer does not fit its schema: {problem}", "SchemaMismatch"))

    @property
    def can(self) -> Capabilities:
        return getattr(self.provider, "capabilities", Capabilities(resume=True))

    @property
    def used(self) -> dict[str, Any]:
        """What the step has taken so far."""
        return {**self.usage, "turns": self.turns}

    @property
    def output(self) -> str:
        return self.said[-1].output if self.said else ""

    def begin(self) -> str:
        """Which conversation to go on with, and the prompt for it."""
        leaf = self.context.leaf
        before = leaf.recorded("agent_thread") if leaf.again else None
        self.thread = self.request.resume
        if self.thread is not None and not self.can.resume:
            told = f"{self.provider.name} keeps no conversations: it is asked without what was said before"
            self.context.emit("log", {"message": told})
            self.thread = None
        if before is not None:
            self.usage = dict(before.get("usage") or {})
            self.turns = self.usage.pop("turns", 0)
            self.usage.pop("agents", None)
        prompt = with_words(self.request.prompt, leaf.said() if leaf.again else [])
        if before is None or not self.can.resume or before.get("provider") != self.provider.name:
            return prompt
        self.thread = self.begun_again = before["thread"]
        self.totals = before.get("totals") or {}
        return INTERRUPTED + prompt

    async def answered(self, prompt: str) -> Done:
        """One turn, and further ones for what people said meanwhile and the agent has not heard."""
        leaf = self.context.leaf
        leaf.words = asyncio.Queue() if self.can.resume or self.can.steer else None
        try:
            done = await self.turn(prompt)
            while done.outcome == "completed" and self.can.resume and (said := unheard(leaf.words)):
                await self.keep_count()
                done = await self.turn(said)
        finally:
            leaf.words = None
        return done

    async def turn(self, prompt: str) -> Done:
        """One turn; a limit of the provider holds everybody who asks it, until it is over."""
        while True:
            await self.open()
            await self.context.leaf.afford(self.used)
            done = await self.asked(prompt)
            if done is not None and done.outcome != "limited":
                if self.accounts.answered(self.provider.name):
                    self.tell_open(over=True)
                return done
            if done is not None:
                self.accounts.limit(self.provider.name, done.resets_at, self.times)
                await self.keep_count()

    async def asked(self, prompt: str) -> Done | None:
        """Ask in a slot; None if by then the provider is limited, or a budget has no more room."""
        leaf = self.context.leaf
        async with AsyncExitStack() as stack:
            with leaf.unhurried(self.context.path):
                turn = self.accounts.turn(self.provider.name, self.thread)
                self.seat = await stack.enter_async_context(turn)
            if self.accounts.is_limited(self.provider.name) or not leaf.begin_turn(self.used):
                return None
            self.times = self.accounts.times(self.provider.name)
            try:
                return await self.listen(prompt)
            finally:
                leaf.end_turn(self.used)

    async def fall_back(self) -> None:
        """Ask the other provider from now on, if there is one and the first is limited."""
        until = self.accounts.limited.get(self.provider.name, 0.0)
        if self.fallback is None or until <= time.time():
            return
        other, self.fallback = self.fallback(), None
        if other is not self.provider:
            await self.tell_limit(until)
            self.tell_open()
            told = f"{self.provider.name} is limited: {other.name} is asked"
            self.context.emit("log", {"message": told})
            self.provider, self.thread, self.begun_again, self.totals = other, None, None, {}
            self.request = replace(self.request, model=None)  # which is a name of the first one's
            self.options = replace(self.options, model=None)

    async def open(self) -> None:
        """Return when the provider is not limited, or another can be asked."""
        await self.fall_back()
        with self.context.leaf.unhurried(self.context.path):
            if await self.accounts.open(self.provider.name, self.tell_limit):
                self.tell_open()

    async def listen(self, prompt: str) -> Done:
        request, options = self.request, self.with_thread()
        if self.thread is not None or self.context.leaf.again:
            await self.accounts.alone()
        said = Said(self.context, self.note)
        self.said.append(said)
        before, turns = self.usage, self.turns
        self.turns += 1
        self.usage = added(before, UNTOLD)  # as long as it has not said what it took
        if (known := options.thread or self.thread) is not None and not options.fork:
            await said.begun(known)
        if request.artifacts:
            make_folder(request.cwd, request.artifacts)
        resume = self.thread if self.can.resume else None
        try:
            done = await said.listen(self.provider.query(prompt, request.cwd, resume, options))
        except asyncio.CancelledError:
            model = getattr(said.usage, "model", None) or request.model
            self.context.emit("usage", UNTOLD | ({"model": model} if model else {}))
            raise
        self.thread, self.totals = done.thread, done.totals
        if said.refused:
            self.usage, self.turns = before, turns
            return done
        told = entry(said.usage, self.provider.name, request.model)
        if told:
            self.context.emit("usage", told)
        self.usage = added(before, told or UNTOLD)
        return done

    async def keep_count(self) -> None:
        if self.said and (thread := self.said[-1].thread or self.thread):
            await self.note(thread)

    async def note(self, thread: str) -> None:
        """Put on disk what the step took so far: tried again, it is neither lost nor counted twice."""
        told = {
            "thread": thread,
            "provider": self.provider.name,
            "totals": dict(self.totals) if thread == self.thread else {},
            "usage": {**self.used, "agents": 1},
        }
        await self.context.leaf.record(self.context.path, "agent_thread", told)
        self.context.leaf.again = True

    def with_thread(self) -> Options:
        asking = Asking(
            self.context,
            self.name,
            self.permissions,
            self.request.cwd or "",
            self.seat.aside if self.seat is not None else nullcontext,
        )
        thread = self.begun_again
        if self.thread is None and self.can.names_threads:
            thread = str(uuid.uuid4())
        return replace(
            self.options,
            thread=thread,
            fork=self.options.fork and thread is None and self.thread == self.request.resume,
            totals=self.totals or self.context.leaf.threads.totals.get(self.thread or "", {}),
            ask=asking.permission,
            words=self.context.leaf.words if self.can.steer else None,
            host_tools=asking.tools if self.can.host_tools else {},
        )

    async def tell_limit(self, until: float) -> None:
        at = datetime.fromtimestamp(until).astimezone().strftime("%H:%M")
        told = {"provider": self.provider.name, "until": until}
        message = f"held: {self.provider.name} limit until {at}"
        await self.context.leaf.record(self.context.path, "provider_limited", told | {"message": message})

    def tell_open(self, **more: bool) -> None:
        self.context.emit("provider_open", {"provider": self.provider.name, **more})

    def ended(self, result: Result) -> Result:
        """The result with all that is to be known of the talk."""
        if result.output is None:
            result["output"] = self.output
        told: dict[str, Any] = {
            "provider": self.provider.name,
            "thread": self.thread,
            "model": self.request.model,
            "tools": sum(said.tools for said in self.said),
        }
        if self.turns:
            told["usage"] = {**self.used, "agents": 1}
        if self.totals:
            told["totals"] = dict(self.totals)
        if dropped := sum(said.dropped for said in self.said):
            told["dropped_characters"] = dropped
        result["attributes"] = told
        return result


def with_words(prompt: str, said: Sequence[str]) -> str:
    """A prompt with what people said since it was given; nobody knows what the agent had heard of it."""
    return "\n\n".join([prompt, MEANWHILE, *said]) if said else prompt


def unheard(words: asyncio.Queue[str] | None) -> str:
    said: list[str] = []
    while words is not None and not words.empty():
        said.append(words.get_nowait())
    return "\n\n".join(said)


def make_folder(cwd: str | None, folder: str) -> None:
    inside(Path(cwd or "."), folder).mkdir(parents=True, exist_ok=True)


OUTCOMES = {"interrupted": "Interrupted", "failed": "AgentFailed", "limited": "ProviderLimited"}
