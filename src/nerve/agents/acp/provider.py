"""The provider `acp`: every turn is a process of its own, and the agent keeps what a session knows."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from nerve.agents.acp.client import Client, Lines, plain
from nerve.agents.acp.hearing import Json, usage_of
from nerve.agents.acp.limits import ended, words
from nerve.agents.acp.money import spent
from nerve.agents.patterns import parted
from nerve.agents.permissions import Permissions
from nerve.agents.port import Begun, Capabilities, Chunk, Done, Options, Outcome, Unavailable
from nerve.agents.starting import environment, starting
from nerve.agents.stream import Tell, told
from nerve.errors import NerveError
from nerve.process.talk import talk

ASKS = ("edit", "delete", "move", "execute", "fetch")
"""Kinds of tools before which agents ask in the modes they begin with."""
KINDS = (*ASKS, "read", "search", "think", "switch_mode", "other")
UNKEPT = (
    "acp cannot keep to the permissions ({}: {}): the agent is not known to ask before '{}'."
    " If it does, name that in the provider's setting 'asks'"
)
START = 60.0
"""Seconds that an agent has for saying hello."""
INTERRUPT = 2.0
"""Seconds that an interrupted agent has for ending its turn by itself."""
NOT_FOUND = -32002
NO_SESSION = re.compile(r"not found|no (such|previous) session|unknown session", re.IGNORECASE)
ENDS: Mapping[str, tuple[Outcome, str]] = {
    "end_turn": ("completed", ""),
    "cancelled": ("interrupted", "the turn was cancelled"),
    "max_tokens": ("failed", "the answer was cut off at the limit of its length"),
    "max_turn_requests": ("failed", "the agent reached its limit of requests for one turn"),
    "refusal": ("failed", "the agent refused to go on"),
}


class AgentGone(NerveError):
    """The agent's process ended in the middle of a turn."""


class Unable(NerveError):
    """The agent cannot do what was asked of it."""


class AcpProvider:
    """An agent that speaks ACP, started by `command`, as in `["gemini", "--acp"]`.

    `env` is added to the few variables that its processes get; `pass_env` names variables of ours that they
    get too, a key for one. `mode` is the agent's own mode of work: in some of them it never asks. `auth` is
    the way to authenticate, where the agent must be told. `resume` is False for agents whose sessions do not
    outlive their process, as those of Gemini. Tools go by the kinds of the protocol (`execute`, `edit` …); in
    `Options.tools` the agent's own names do as well, where it tells them. `asks` are the kinds of tools
    before which the agent asks: only these can be denied or asked about by name.
    """

    name = "acp"

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        mode: str | None = None,
        auth: str | None = None,
        resume: bool = True,
        asks: Sequence[str] = ASKS,
    ) -> None:
        if isinstance(command, str) or not command:
            raise ValueError(f"a command is a list of a program and its arguments, not {command!r}")
        self.command = [str(word) for word in command]
        self.env, self.pass_env = dict(env or {}), tuple(pass_env)
        self.mode, self.auth, self.asks = mode, auth, tuple(asks)
        self.capabilities = Capabilities(resume=resume, permissions=True)

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        self._keeps(options.permissions)
        turn = Turn(self, prompt, cwd, resume, options)
        async with aclosing(told(turn.run)) as chunks:
            async for chunk in chunks:
                yield chunk
                if isinstance(chunk, Begun):
                    turn.named.set()

    def _keeps(self, policy: Permissions) -> None:
        """Refuse a policy that names what the agent does without asking."""
        for verdict, patterns in (("deny", policy.deny), ("ask", policy.ask)):
            for pattern in patterns:
                name, _ = parted(pattern)
                if name in KINDS and name not in self.asks:
                    raise ValueError(UNKEPT.format(verdict, pattern, name))


class Turn:
    """One prompt and what comes of it."""

    def __init__(
        self, provider: AcpProvider, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> None:
        self.provider, self.prompt, self.options = provider, prompt, options
        self.cwd = os.path.abspath(cwd or ".")
        self.resumed = resume
        self.thread = resume or ""
        self.named = asyncio.Event()
        """Set when it was heard how the session is called; nothing is asked before."""
        self.methods: list[str] = []

    async def run(self, tell: Tell) -> None:
        acp = await library()
        env = environment(self.provider.pass_env, self.provider.env, self.options.env)
        command = self.provider.command
        with starting(command[0], "install it, or correct the provider's command"):
            async with talk(command, cwd=self.cwd, env=env) as program:
                client = Client(acp, tell, self.options, self.cwd)
                connection = acp.connect_to_agent(client, Lines(program))
                try:
                    tell(await self._talk(acp, connection, client, tell))
                except ConnectionError:
                    raise AgentGone(gone(command[0], await program.ended())) from None
                finally:
                    await client.hush()
                    await connection.close()

    async def _talk(self, acp: Any, connection: Any, client: Client, tell: Tell) -> Done:
        try:
            model = await self._open(acp, connection)
            tell(Begun(self.thread))
            await self.named.wait()
            client.listening = True
            answer = await self._answer(acp, connection, client)
        except (acp.RequestError, Unable) as error:
            client.finish()
            return replace(ended(self.thread, error, self.methods), totals=self.options.totals)
        client.finish()
        stop = answer["stopReason"]
        outcome, why = ENDS.get(stop, ("failed", f"the agent ended with '{stop}'"))
        usage, totals = spent(client.hearing.cost, usage_of(answer, model), self.options.totals)
        return Done(self.thread, usage, outcome, why, totals=totals)

    async def _open(self, acp: Any, connection: Any) -> str | None:
        """Say hello and open the session; gives the model, if the agent says which."""
        try:
            async with asyncio.timeout(START):
                hello = plain(await connection.initialize(acp.PROTOCOL_VERSION, **ourselves(acp)))
        except TimeoutError:
            raise Unable(f"'{self.provider.command[0]}' did not speak ACP within {START:.0f} s") from None
        if hello["protocolVersion"] != acp.PROTOCOL_VERSION:
            raise Unable(f"the agent speaks version {hello['protocolVersion']} of ACP, not 1")
        self.methods = [method["id"] for method in hello.get("authMethods") or ()]
        if self.provider.auth:
            await connection.authenticate(self.provider.auth)
        session = await self._session(acp, connection, hello.get("agentCapabilities") or {})
        return await self._set_up(connection, session)

    async def _session(self, acp: Any, connection: Any, can: Json) -> Json:
        if self.resumed is None:
            return await self._begun(connection)
        if self.options.fork:
            raise Unable("sessions of ACP agents are not forked")
        try:
            return await self._resumed(connection, can)
        except acp.RequestError as error:
            # With the thread named as the one to begin as well, one that was lost in a crash begins anew.
            if self.options.thread != self.resumed or not unknown(error):
                raise
            return await self._begun(connection)

    async def _begun(self, connection: Any) -> Json:
        session = plain(await connection.new_session(self.cwd, mcp_servers=[]))
        self.thread, self.resumed = session["sessionId"], None
        return session

    async def _resumed(self, connection: Any, can: Json) -> Json:
        where = {"session_id": self.thread, "cwd": self.cwd, "mcp_servers": []}
        if (can.get("sessionCapabilities") or {}).get("resume") is not None:
            return plain(await connection.resume_session(**where))
        if can.get("loadSession"):
            return plain(await connection.load_session(**where))
        raise Unable("the agent can neither resume nor load a session")

    async def _set_up(self, connection: Any, session: Json) -> str | None:
        """Set mode and model; an agent without a choice of models is left as it is."""
        offered = {option.get("category"): option for option in session.get("configOptions") or ()}
        if self.provider.mode is not None:
            await connection.set_session_mode(self.thread, self.provider.mode)
        choice = offered.get("model")
        if choice is None:
            return self.options.model
        if self.options.model is None:
            current = choice.get("currentValue")
            return None if current == "default" else current
        await connection.set_config_option(choice["id"], self.thread, self.options.model)
        return self.options.model

    async def _answer(self, acp: Any, connection: Any, client: Client) -> Json:
        texts = [self.options.system] if self.options.system and self.resumed is None else []
        blocks = [acp.text_block(text) for text in (*texts, self.prompt)]
        prompt = asyncio.create_task(connection.prompt(self.thread, blocks))
        try:
            await asyncio.wait({prompt, client.trouble}, return_when=asyncio.FIRST_COMPLETED)
            if client.trouble.done():
                await self._interrupt(connection, client, prompt)
                client.trouble.result()
            return plain(await prompt)
        except asyncio.CancelledError:
            await self._interrupt(connection, client, prompt)
            raise
        finally:
            prompt.cancel()
            await asyncio.gather(prompt, return_exceptions=True)

    async def _interrupt(self, connection: Any, client: Client, prompt: asyncio.Task[Any]) -> None:
        """Let the agent end its turn itself, so that the session is whole; its processes end in any case."""
        await client.hush()
        try:
            await connection.cancel(self.thread)
        except ConnectionError:
            return  # it has ended
        await asyncio.wait({prompt}, timeout=INTERRUPT)


async def library() -> Any:
    """Import it, which takes most of a second, without stopping everything else."""
    try:
        return await asyncio.to_thread(importlib.import_module, "acp")
    except ImportError as error:
        why = f"the provider 'acp' needs a library ({error}): pip install 'nerve[acp]'"
        raise Unavailable(why) from error


def ourselves(acp: Any) -> dict[str, Any]:
    capable = acp.schema.ClientCapabilities.model_validate({"fs": {}, "terminal": False})
    info = acp.schema.Implementation.model_validate({"name": "nerve", "title": "nerve", "version": "0"})
    return {"client_capabilities": capable, "client_info": info}


def unknown(error: Any) -> bool:
    """Whether the agent says that there is no such session."""
    return error.code == NOT_FOUND or bool(NO_SESSION.search(words(str(error), error.data)))


def gone(program: str, stderr: str) -> str:
    said = stderr.strip()[-2000:]
    return f"'{program}' ended in the middle of a turn" + (f": {said}" if said else "")
