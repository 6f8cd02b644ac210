"""The provider `codex`: every query is a process of its own.

A process for each turn, and not one for all: closing a turn may then kill whatever it left running, without
a word to the others; the environment and folder can differ from turn to turn; and the fourth of a second
that it takes to start is nothing beside what a model takes. What a thread knows is on disk.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Self

from nerve.agents.codex import program
from nerve.agents.codex.approvals import Question, question
from nerve.agents.codex.guard import Guard
from nerve.agents.codex.program import KEYS, REACH
from nerve.agents.codex.reading import Reading
from nerve.agents.codex.rpc import CodexEnded, Message, Peer, Refused
from nerve.agents.codex.strict import is_strict
from nerve.agents.port import Begun, Capabilities, Chunk, Done, Options
from nerve.agents.starting import environment
from nerve.process.talk import talk

INTERRUPT = 2.0
"""Seconds that an interrupted turn gets to end by itself."""
GRACE = 2.0
"""Seconds from TERM to KILL for the processes."""
PAUSES = (0.2, 0.4, 0.8, None)
"""Seconds before another start: of several that are the first in a home at once, all but one may give up."""
TAKEN = 10.0
"""Seconds that a turn waits for another of the same thread."""
OURSELVES = {"name": "nerve", "title": "nerve", "version": "0"}

Sandbox = Literal["read-only", "workspace-write", "danger-full-access"]
Approval = Literal["untrusted", "on-request", "never"]


class CodexProvider:
    """Codex, by `codex app-server`.

    `approval` says when it asks (`untrusted`: before every command that does more than read), `sandbox` what
    it may do without; None leaves either to the user's settings. `home` is its CODEX_HOME, the user's by
    default. `config` are settings as in its config.toml; they show in the list of processes: no secrets.
    `env`, and what `pass_env` names of our environment beside its own key, is for Codex itself and kept from
    the commands it runs; `Options.env` and the proxy of the network are for both. `base_url` and
    `env_key`, the name of the variable with the key, are those of any server that has the Responses API.
    """

    name = "codex"
    capabilities = Capabilities(resume=True, fork=True, schema=True, permissions=True, steer=True)

    def __init__(
        self,
        model: str | None = None,
        *,
        sandbox: Sandbox | None = "workspace-write",
        approval: Approval | None = "on-request",
        home: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        base_url: str | None = None,
        env_key: str | None = None,
        program: str | None = None,
    ) -> None:
        self._model, self._sandbox, self._approval = model, sandbox, approval
        self._home, self._program = home, program
        self._env = dict(env or {})
        self._own = (*KEYS, *pass_env, *([env_key] if env_key else []))
        self._config = {**own_provider(base_url, env_key), **(config or {})}

    def check(self) -> None:
        """Raise Unavailable if there is no program to start."""
        program.found(self._program)

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        begun = ""
        try:
            async with Guard(options).watching() as guard, self._opened(cwd, options, guard) as peer:
                thread = await self._thread(peer, cwd, resume, options, await guard.trusted(peer))
                begun = thread["thread"]["id"]
                yield Begun(begun)  # and nothing is asked before it was heard
                async with Turn(peer, thread, prompt, options, guard) as turn:
                    while turn.reading.done is None:
                        for chunk in await turn.hear():
                            yield chunk
        except Refused as error:
            yield Done(begun or resume or "", outcome="failed", error=str(error))

    @asynccontextmanager
    async def _opened(self, cwd: str | None, options: Options, guard: Guard) -> AsyncIterator[Peer]:
        """A program that is ready to be asked."""
        hide = hidden({*self._env, *self._own} - options.env.keys() - set(REACH))
        command = program.argv(program.found(self._program), guard.config(hide | self._config))
        env = environment((*REACH, *self._own), program.own_home(self._home), self._env, options.env)
        async with AsyncExitStack() as stack:
            for pause in PAUSES:
                peer = Peer(await stack.enter_async_context(talk(command, cwd=cwd, env=env, grace=GRACE)))
                try:
                    await peer.request("initialize", {"clientInfo": OURSELVES})
                    break
                except CodexEnded:
                    if pause is None:
                        raise
                await stack.aclose()
                await asyncio.sleep(pause)
            peer.notify("initialized")
            yield peer

    async def _thread(
        self, peer: Peer, cwd: str | None, resume: str | None, options: Options, guarded: Message
    ) -> Message:
        settings = {
            "model": options.model or self._model,
            "sandbox": self._sandbox,
            "approvalPolicy": self._approval,
            "approvalsReviewer": "user",
            "developerInstructions": options.system,
        }
        params = {name: value for name, value in settings.items() if value is not None} | guarded
        if resume is None:
            # It was started in its folder. One named here would be trusted for ever, with all its settings.
            return await peer.request("thread/start", params)
        old = {"threadId": resume, "excludeTurns": True, "cwd": program.absolute(cwd or ".")}
        method = "thread/fork" if options.fork else "thread/resume"
        try:
            return await free(lambda: peer.request(method, {**old, **params}))
        except Refused as error:
            # With the thread named as the one to begin as well, one that was lost in a crash begins anew.
            if options.thread != resume or "no rollout found" not in str(error):
                raise
            return await peer.request("thread/start", params)


class Turn:
    """One prompt and what comes of it; leaving it early interrupts it."""

    def __init__(self, peer: Peer, thread: Message, prompt: str, options: Options, guard: Guard) -> None:
        self._peer, self._options, self._prompt, self._guard = peer, options, prompt, guard
        self._questions: dict[Any, asyncio.Task[None]] = {}
        self._model = thread.get("model")
        self._steering: asyncio.Task[None] | None = None
        self.reading = Reading(thread["thread"]["id"], "", self._model)

    async def __aenter__(self) -> Self:
        thread, schema = self.reading.thread, self._options.schema
        params: Message = {"threadId": thread, "input": [{"type": "text", "text": self._prompt}]}
        if schema is not None and is_strict(schema):
            params["outputSchema"] = schema
        elif schema is not None:
            params["input"].append({"type": "text", "text": in_words(schema)})
        answer = await self._peer.request("turn/start", params)
        self.reading = Reading(thread, answer["turn"]["id"], self._model, schema is not None)
        self._steering = asyncio.create_task(self._steered()) if self._options.words is not None else None
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._steering is not None:
            self._steering.cancel()
            await asyncio.wait({self._steering})
        for asked in self._questions.values():
            asked.cancel()
        await asyncio.gather(*self._questions.values(), return_exceptions=True)
        if self.reading.done is None:
            await self._interrupt()

    async def _interrupt(self) -> None:
        params = {"threadId": self.reading.thread, "turnId": self.reading.turn}
        self._peer.ask_only("turn/interrupt", params)
        try:
            async with asyncio.timeout(INTERRUPT):
                while self.reading.done is None:
                    message = await self._peer.message()
                    list(self.reading.take(message["method"], message.get("params") or {}))
        except (TimeoutError, CodexEnded):
            pass  # the processes are ended now, in any case

    async def hear(self) -> list[Chunk]:
        """What the next message says; a question is put to whom it concerns meanwhile."""
        message = await self._next()
        method, params = message["method"], message.get("params") or {}
        if "id" in message:
            self._asked(message["id"], method, params)
            return []
        if method == "serverRequest/resolved" and (asked := self._questions.pop(params["requestId"], None)):
            asked.cancel()
        return list(self.reading.take(method, params))

    async def _next(self) -> Message:
        message = asyncio.create_task(self._peer.message())
        try:
            while not message.done():
                others: set[asyncio.Future[Any]] = {message, self._guard.trouble, *self._questions.values()}
                await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
                if self._guard.trouble.done():
                    self._guard.trouble.result()
                for number, asked in list(self._questions.items()):
                    if asked.done():
                        del self._questions[number]
                        asked.result()
            return message.result()
        finally:
            message.cancel()
            await asyncio.wait({message})

    def _asked(self, number: Any, method: str, params: Message) -> None:
        match question(method, params, self.reading.items):
            case Question() as asked:
                id = str(params.get("itemId"))
                self._questions[number] = asyncio.create_task(self._put(number, id, asked))
            case None:
                self._peer.refuse(number, method)
            case answer:
                self._peer.answer(number, answer)

    async def _put(self, number: Any, id: str, asked: Question) -> None:
        decision = await self._guard.decide(id, asked.permission)
        if decision.message and not decision.allow:
            self._say(f"This was not allowed: {decision.message}")  # a refusal itself carries no words
        self._peer.answer(number, asked.answer(decision))

    async def _steered(self) -> None:
        assert self._options.words is not None
        while True:
            text = await self._options.words.get()
            if self.reading.done is not None:  # too late for this turn: whoever asks finds it there
                self._options.words.put_nowait(text)
                return
            self._say(text)

    def _say(self, text: str) -> None:
        """Put in a word while the turn goes on."""
        thread, turn = self.reading.thread, self.reading.turn
        params = {"threadId": thread, "expectedTurnId": turn, "input": [{"type": "text", "text": text}]}
        self._peer.ask_only("turn/steer", params)


async def free(ask: Callable[[], Awaitable[Message]]) -> Message:
    """Wait for a thread that another process has: after a crash, one that is just about to end."""
    deadline = asyncio.get_running_loop().time() + TAKEN
    while True:
        try:
            return await ask()
        except Refused as error:
            if "active writer" not in str(error) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.1)


def own_provider(base_url: str | None, env_key: str | None) -> dict[str, Any]:
    """The settings for a server of one's own."""
    if base_url is None:
        return {}
    server = {"name": "nerve", "base_url": base_url, "wire_api": "responses"}
    if env_key:
        server["env_key"] = env_key
    settings = {f"model_providers.nerve.{name}": value for name, value in server.items()}
    return {"model_provider": "nerve", **settings}


def hidden(names: Set[str]) -> dict[str, Any]:
    """Keep what is for Codex itself, its key for one, from the commands that it runs."""
    return {"shell_environment_policy.exclude": sorted(names)}


def in_words(schema: Mapping[str, Any]) -> str:
    return "Answer with JSON only, and of this JSON Schema:\n" + json.dumps(schema, ensure_ascii=False)
