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
from nerve.agents.answers import TRIES, once_more, with_schema
from nerve.agents.asking import Asking
from nerve.agents.ledger import UNTOLD, added, entry
from nerve.agents.permissions import Permissions
from nerve.agents.port import Capabilities, Done, Options, Provider
from nerve.agents.request import Request
from nerve.agents.said import Said
from nerve.agents.secrets import Secrets
from nerve.core.nodes.context import ExecutionContext
from nerve.core.paths import inside
from nerve.core.result import Result
from nerve.core.schemas import problem_of, read_answer
from nerve.core.values import mended

INTERRUPTED = (
    "You were interrupted before you were done. Go on with your task; if it is done already, give your final"
    " answer again. The task was:\n\n"
)
WITHOUT = "it is asked without what was said before"
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
    secrets: Secrets
    fallback: Callable[[], Provider] | None = None
    """Who is asked while the provider is limited; found when it is needed."""
    forks: bool = False
    """Whether it goes on with a copy of the conversation before."""
    shares: bool = False
    """Whether it goes on with what was said before at all, whoever is asked."""
    thread: str | None = None
    origin: str | None = None
    """The conversation that is to be forked, until there is one that is."""
    begun_again: str | None = None
    """The conversation that a crash cut off: it is gone on with, or begun if there is nothing of it."""
    usage: dict[str, Any] = field(default_factory=dict)
    turns: int = 0
    """How often the agent was asked, in earlier attempts too."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    seat: Seat | None = None
    cut_off: Mapping[str, Any] | None = None
    """What an attempt before noted, that did not come to its end."""
    noted: Mapping[str, Any] | None = None
    instead_of: str = ""
    """The provider that is limited, if another is asked."""
    fell_back: bool = False
    """Whether that other one has not answered yet, and knows nothing of the task."""
    times: int = 0
    """How often the provider had refused when it was asked last."""

    async def result(self) -> Result:
        """The answer, in the form that was asked for."""
        schema = self.request.schema
        self.begin()
        further: str | None = None
        for _ in range(TRIES if schema else 1):
            done = await self.answered(further)
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
                if not (result := Result.ok(answer).as_reported()).success:
                    await self.keep_count()
                return self.ended(result)
            await self.keep_count()
            further = once_more(problem, schema)
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

    def begin(self) -> None:
        """Find which conversation to go on with: that of an attempt that was cut off, or of a step before."""
        leaf = self.context.leaf
        self.cut_off = leaf.recorded("agent_thread") if leaf.again else None
        if self.cut_off is not None:
            self.usage = dict(self.cut_off.get("usage") or {})
            self.turns = self.usage.pop("turns", 0)
            self.usage.pop("agents", None)
        self.join(self.request.resume)

    def join(self, before: str | None) -> None:
        """Go on in the conversation before, or in the provider's own one that was cut off."""
        noted = self.cut_off or {}
        mine = noted if noted.get("provider") == self.provider.name and self.can.resume else {}
        self.thread, self.origin, self.begun_again, self.totals = before, None, None, {}
        if mine and mine.get("forks") is None:
            self.thread = self.begun_again = mine["thread"]
            self.totals = mine.get("totals") or {}
        elif before is not None and not self.can.resume:
            self.tell(f"{self.provider.name} keeps no conversations: {WITHOUT}")
            self.thread = None
        elif before is not None:
            self.copy(before)

    def copy(self, before: str) -> None:
        """Fork the conversation before if that is to stay as it is: always so with one of another run."""
        lent = self.context.leaf.threads.lent(before)
        if lent is not None and not self.can.fork:
            self.tell(f"{self.provider.name} cannot fork the conversation of the run before: {WITHOUT}")
            self.thread = None
            return
        if lent is not None:
            self.totals = lent.totals
            if lent.grown:
                self.tell("the conversation has gone on in the run before: the fork of it knows that, too")
        if lent is not None or self.forks:
            self.origin = before

    def prompt(self, further: str | None) -> str:
        """What is new; to an agent that knows nothing of the task yet, all that was said of it."""
        if further is not None and self.can.resume and not self.fell_back:
            return further
        text = with_words(self.request.prompt, self.context.leaf.said() if self.context.leaf.again else [])
        if further is not None and further not in text:
            text = f"{text}\n\n{further}"
        schema = self.request.schema
        if schema and not self.can.schema and with_schema("", schema) not in text:
            text = with_schema(text, schema)
        return INTERRUPTED + text if self.begun_again is not None else text

    async def answered(self, further: str | None) -> Done:
        """One turn, and further ones for what people said meanwhile and the agent has not heard."""
        leaf = self.context.leaf
        leaf.words = asyncio.Queue() if self.can.resume or self.can.steer else None
        try:
            done = await self.turn(further)
            while done.outcome == "completed" and self.can.resume and (said := unheard(leaf.words)):
                await self.keep_count()
                done = await self.turn(said)
        finally:
            leaf.words = None
        return done

    async def turn(self, further: str | None) -> Done:
        """One turn; a limit of the provider holds everybody who asks it, until it is over."""
        while True:
            await self.open()
            await self.context.leaf.afford(self.used)
            done = await self.asked(self.prompt(further))
            if done is not None and done.outcome != "limited":
                self.fell_back = False
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
            self.tell(f"{self.provider.name} is limited: {other.name} is asked")
            self.instead_of, self.provider, self.fell_back = self.provider.name, other, True
            before = self.context.leaf.threads.last.get((self.name, other.name)) if self.shares else None
            self.request = replace(self.request, model=None)  # which is a name of the first one's
            self.options = replace(self.options, model=None)
            self.join(before)

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
        said = Said(self.context, self.begun, self.secrets)
        self.said.append(said)
        before, turns = self.usage, self.turns
        self.turns += 1
        self.usage = added(before, UNTOLD)  # as long as it has not said what it took
        if (known := options.thread or self.thread) is not None:
            await self.note(known)
        if request.artifacts:
            make_folder(request.cwd, request.artifacts)
        resume = self.thread if self.can.resume else None
        try:
            done = await said.listen(self.provider.query(prompt, request.cwd, resume, options))
        except asyncio.CancelledError:
            model = getattr(said.usage, "model", None) or request.model
            self.context.emit("usage", UNTOLD | ({"model": model} if model else {}))
            raise
        self.thread, self.totals, self.origin = done.thread, done.totals, None
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

    async def begun(self, thread: str) -> None:
        """The conversation is there: from now on it is this one that is gone on with."""
        self.origin = None
        await self.note(thread)

    async def note(self, thread: str) -> None:
        """Put on disk what the step took so far: tried again, it is neither lost nor counted twice."""
        told = {
            "thread": thread,
            "provider": self.provider.name,
            "totals": dict(self.totals) if thread == self.thread or self.origin is not None else {},
            "usage": {**self.used, "agents": 1},
        }
        if self.origin is not None:
            told["forks"] = self.origin  # and nobody knows whether that was done
        if told != self.noted:
            await self.context.leaf.record(self.context.path, "agent_thread", told)
            self.noted = told
        self.context.leaf.again = True

    def with_thread(self) -> Options:
        asking = Asking(
            self.context,
            self.name,
            self.permissions,
            self.request.cwd or "",
            self.secrets,
            self.seat.aside if self.seat is not None else nullcontext,
        )
        fork, thread = self.origin is not None, self.begun_again
        if self.can.names_threads and (fork or self.thread is None):
            thread = str(uuid.uuid4())
        return replace(
            self.options,
            thread=thread,
            fork=fork,
            totals=self.totals or self.context.leaf.threads.totals.get(self.thread or "", {}),
            ask=asking.permission,
            words=self.context.leaf.words if self.can.steer else None,
            host_tools=asking.tools if self.can.host_tools else {},
        )

    def tell(self, message: str) -> None:
        self.context.emit("log", {"message": message})

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
        result["output"] = mended(result.output)
        told: dict[str, Any] = {
            "provider": self.provider.name,
            "thread": self.thread,
            "model": self.request.model,
            "tools": sum(said.tools for said in self.said),
        }
        if self.instead_of:
            told["instead_of"] = self.instead_of
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
