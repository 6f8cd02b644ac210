"""The provider `acp`: each turn runs in its own process, and the agent stores its sessions."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from nerve.agents.acp.client import AcpClient, JsonLines, model_to_json
from nerve.agents.acp.cost import turn_cost
from nerve.agents.acp.updates import JsonObject, acp_turn_usage
from nerve.agents.chunk_stream import AnswerTasks, EmitChunk, chunks_from_callback
from nerve.agents.launch import CLIENT_INFO, agent_environment, import_library, translate_launch_errors
from nerve.agents.mcp_relay import serve_tools
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import (
    AgentEnded,
    Capabilities,
    Chunk,
    QueryOptions,
    ThreadStarted,
    TurnFinished,
    TurnOutcome,
)
from nerve.agents.rate_limits import failed_turn
from nerve.agents.tool_patterns import split_pattern
from nerve.errors import NerveError
from nerve.process.line_process import open_line_process
from nerve.project.agent_settings import PERMISSION_MODES

ASKING_KINDS = ("edit", "delete", "move", "execute", "fetch")
"""Kinds of tools for which agents request permission in their default mode."""
TOOL_KINDS = (*ASKING_KINDS, "read", "search", "think", "switch_mode", "other")
UNENFORCEABLE = (
    "Provider 'acp' cannot enforce the permissions ({}: {}): the agent is not known to ask before '{}'."
    " If it does, add that kind to the provider's setting 'asks'"
)
EFFORT_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Levels that agents offer; one that an agent does not offer fails the turn."""
START_TIMEOUT_S = 60.0
"""Seconds that an agent has to complete the handshake."""
INTERRUPT_TIMEOUT_S = 2.0
"""Seconds that an interrupted agent has to end its turn."""
NOT_FOUND_CODE = -32002
AUTH_REQUIRED_CODE = -32000
MAX_ERROR_CHARS, MAX_STDERR_CHARS = 4_000, 2_000
NO_SESSION_TEXT = re.compile(r"not found|no (such|previous) session|unknown session", re.IGNORECASE)
OUTCOME_BY_STOP_REASON: Mapping[str, tuple[TurnOutcome, str]] = {
    "end_turn": ("completed", ""),
    "cancelled": ("interrupted", "The turn was cancelled"),
    "max_tokens": ("failed", "The answer exceeded the token limit"),
    "max_turn_requests": ("failed", "The agent reached its request limit for one turn"),
    "refusal": ("failed", "The agent refused to continue"),
}


class AgentGone(AgentEnded):
    """The agent's process ended during a turn."""


class UnsupportedAgent(NerveError):
    """The agent does not support the requested feature."""


class AcpProvider:
    """An agent that speaks ACP, started by `command`, like `["gemini", "--acp"]`.

    `env` is added to the minimal environment of its processes; `pass_env` names variables of the parent
    environment to pass on, such as an API key. `mode` is the agent's own mode; in some modes it never asks.
    `auth` is the authentication method, for agents that require one. Set `resume` to False for agents whose
    sessions end with their process, like Gemini. Tools are named by the kinds of the protocol (`execute`,
    `edit` …); `QueryOptions.tools` also accepts the agent's own names if it reports them. `asks` lists the
    kinds of tools for which the agent requests permission: only these can be denied or asked about by name.
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
        asks: Sequence[str] = ASKING_KINDS,
    ) -> None:
        if isinstance(command, str) or not command:
            raise ValueError(f"command must be a list of a program and its arguments, got {command!r}")
        self.command = [str(argument) for argument in command]
        self.env, self.pass_env = dict(env or {}), tuple(pass_env)
        self.mode, self.auth, self.asks = mode, auth, tuple(asks)
        self.capabilities = Capabilities(
            resume=resume,
            permissions=True,
            host_tools=True,
            ask_human=False,
            mcp=True,
            effort=EFFORT_LEVELS,
            reads_on_its_own=True,
            modes=PERMISSION_MODES,
            edit_tools=("edit",),
            read_tools=("read", "search", "think"),
        )

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        # Reject a policy that restricts tools for which the agent does not ask.
        for verdict, patterns in (("deny", options.permissions.deny), ("ask", options.permissions.ask)):
            for pattern in patterns:
                name, _ = split_pattern(pattern)
                if name in TOOL_KINDS and name not in self.asks:
                    raise ValueError(UNENFORCEABLE.format(verdict, pattern, name))
        turn = AcpTurn(self, prompt, cwd, resume, options)
        async with aclosing(chunks_from_callback(turn.run)) as chunks:
            async for chunk in chunks:
                yield chunk
                if isinstance(chunk, ThreadStarted):
                    turn.is_thread_announced.set()


class AcpTurn:
    """One prompt and its chunks."""

    def __init__(
        self, provider: AcpProvider, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> None:
        self.provider, self.prompt, self.options = provider, prompt, options
        self.cwd = os.path.abspath(cwd or ".")
        self.resumed_thread = resume
        self.thread = resume or ""
        self.is_thread_announced = asyncio.Event()
        """Set when the caller has the session id; the prompt is not sent before."""
        self.auth_methods: list[str] = []
        self.own_servers: Mapping[str, Mapping[str, Any]] = {}
        """The MCP server with the tools of Nerve."""

    async def run(self, emit: EmitChunk) -> None:
        acp = await import_library("acp", "acp")
        env = agent_environment(self.provider.pass_env, self.provider.env, self.options.env)
        command = self.provider.command
        answers, tools = AnswerTasks(), McpToolServer(self.options.host_tools)

        def emit_unrecorded(chunk: Chunk) -> None:
            if not tools.is_recorded(chunk):
                emit(chunk)

        with translate_launch_errors(command[0], "install it, or correct the provider's command"):
            async with (
                serve_tools(tools, answers) as self.own_servers,
                open_line_process(command, cwd=self.cwd, env=env) as program,
            ):
                client = AcpClient(acp, emit_unrecorded, self.options, self.cwd, answers)
                connection = acp.connect_to_agent(client, JsonLines(program))
                try:
                    emit(await self._run_session(acp, connection, client, emit))
                except ConnectionError:
                    output = (await program.wait_for_stderr()).strip()[-MAX_STDERR_CHARS:]
                    raise AgentGone(
                        f"'{command[0]}' ended during a turn" + (f": {output}" if output else "")
                    ) from None
                finally:
                    await client.answers.close()
                    await connection.close()

    async def _run_session(
        self, acp: Any, connection: Any, client: AcpClient, emit: EmitChunk
    ) -> TurnFinished:
        try:
            model = await self._open_session(acp, connection)
            emit(ThreadStarted(self.thread))
            await self.is_thread_announced.wait()
            client.is_listening = True
            answer = await self._prompt_agent(acp, connection, client)
        except (acp.RequestError, UnsupportedAgent) as error:
            client.flush_chunks()
            return replace(
                outcome_of_error(self.thread, error, self.auth_methods), totals=self.options.totals
            )
        client.flush_chunks()
        stop = answer["stopReason"]
        outcome, error_message = OUTCOME_BY_STOP_REASON.get(
            stop, ("failed", f"The agent stopped with reason '{stop}'")
        )
        usage, totals = turn_cost(
            client.update_reader.cost, acp_turn_usage(answer, model), self.options.totals
        )
        return TurnFinished(self.thread, usage, outcome, error_message, totals=totals)

    async def _open_session(self, acp: Any, connection: Any) -> str | None:
        """Initialize the connection and open the session; return the model, if the agent reports it."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                capabilities = acp.schema.ClientCapabilities.model_validate({"fs": {}, "terminal": False})
                info = acp.schema.Implementation.model_validate(CLIENT_INFO)
                hello = model_to_json(
                    await connection.initialize(
                        acp.PROTOCOL_VERSION, client_capabilities=capabilities, client_info=info
                    )
                )
        except TimeoutError:
            raise UnsupportedAgent(
                f"'{self.provider.command[0]}' did not complete the ACP handshake in {START_TIMEOUT_S:.0f} s"
            ) from None
        if hello["protocolVersion"] != acp.PROTOCOL_VERSION:
            raise UnsupportedAgent(f"Agent uses ACP version {hello['protocolVersion']}, expected 1")
        self.auth_methods = [method["id"] for method in hello.get("authMethods") or ()]
        if self.provider.auth:
            await connection.authenticate(self.provider.auth)
        session = await self._start_or_resume(acp, connection, hello.get("agentCapabilities") or {})
        # Set mode and model; do nothing for an agent that does not offer models.
        offered = {option.get("category"): option for option in session.get("configOptions") or ()}
        if self.provider.mode is not None:
            await connection.set_session_mode(self.thread, self.provider.mode)
        if (effort := self.options.effort) is not None:
            await self._set_effort(connection, offered.get("thought_level"), effort)
        choice = offered.get("model")
        if choice is None:
            return self.options.model
        if self.options.model is None:
            current = choice.get("currentValue")
            return None if current == "default" else current
        await connection.set_config_option(choice["id"], self.thread, self.options.model)
        return self.options.model

    async def _set_effort(self, connection: Any, option: JsonObject | None, effort: str) -> None:
        values = [str(item.get("value")) for item in (option or {}).get("options") or ()]
        if option is None or effort not in values:
            offered = f"it offers {', '.join(values)}" if values else "it does not offer levels of effort"
            raise UnsupportedAgent(f"'{self.provider.command[0]}' cannot honour effort '{effort}': {offered}")
        await connection.set_config_option(option["id"], self.thread, effort)

    def _mcp_servers(self, acp: Any, agent_capabilities: JsonObject) -> list[Any]:
        """Return the MCP servers of the session; every agent can start programs, not every one uses HTTP."""
        servers: list[Any] = []
        for name, server in {**self.options.mcp, **self.own_servers}.items():
            if "url" in server:
                if not (agent_capabilities.get("mcpCapabilities") or {}).get("http"):
                    raise UnsupportedAgent(
                        f"'{self.provider.command[0]}' cannot use MCP servers over HTTP, such as '{name}'"
                    )
                values = {"type": "http", "url": server["url"], "headers": name_values(server.get("headers"))}
                servers.append(acp.schema.HttpMcpServer.model_validate({"name": name, **values}))
            else:
                program = {"command": server["command"], "args": server.get("args") or []}
                values = {"name": name, **program, "env": name_values(server.get("env"))}
                servers.append(acp.schema.McpServerStdio.model_validate(values))
        return servers

    async def _start_or_resume(self, acp: Any, connection: Any, agent_capabilities: JsonObject) -> JsonObject:
        servers = self._mcp_servers(acp, agent_capabilities)
        if self.resumed_thread is None:
            return await self._start_session(connection, servers)
        if self.options.fork:
            raise UnsupportedAgent("ACP agents do not support forking a session")
        try:
            session_params = {"session_id": self.thread, "cwd": self.cwd, "mcp_servers": servers}
            if (agent_capabilities.get("sessionCapabilities") or {}).get("resume") is not None:
                return model_to_json(await connection.resume_session(**session_params))
            if agent_capabilities.get("loadSession"):
                return model_to_json(await connection.load_session(**session_params))
            raise UnsupportedAgent("Agent can neither resume nor load a session")
        except acp.RequestError as error:
            # The thread to resume is also the one to start: a session lost in a crash starts again.
            is_unknown = error.code == NOT_FOUND_CODE or NO_SESSION_TEXT.search(
                acp_error_text(str(error), error.data)
            )
            if self.options.thread != self.resumed_thread or not is_unknown:
                raise
            return await self._start_session(connection, servers)

    async def _start_session(self, connection: Any, servers: list[Any]) -> JsonObject:
        session = model_to_json(await connection.new_session(self.cwd, mcp_servers=servers))
        self.thread, self.resumed_thread = session["sessionId"], None
        return session

    async def _prompt_agent(self, acp: Any, connection: Any, client: AcpClient) -> JsonObject:
        texts = [self.options.system] if self.options.system and self.resumed_thread is None else []
        blocks = [acp.text_block(text) for text in (*texts, self.prompt)]
        prompt = asyncio.create_task(connection.prompt(self.thread, blocks))
        try:
            return model_to_json(await client.answers.run(asyncio.shield(prompt)))
        finally:
            if not prompt.done():
                await self._interrupt(connection, client, prompt)
            prompt.cancel()
            await asyncio.gather(prompt, return_exceptions=True)

    async def _interrupt(self, connection: Any, client: AcpClient, prompt: asyncio.Task[Any]) -> None:
        """Let the agent end its turn, so that its session stays consistent; its processes end in any case."""
        await client.answers.close()
        try:
            await connection.cancel(self.thread)
        except ConnectionError:
            return  # the agent has ended
        await asyncio.wait({prompt}, timeout=INTERRUPT_TIMEOUT_S)


def name_values(texts: Mapping[str, str] | None) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in (texts or {}).items()]


def outcome_of_error(thread: str, error: Exception, methods: list[str]) -> TurnFinished:
    """Return the outcome of a turn that the agent ended with an error."""
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    text = acp_error_text(str(error), data)[:MAX_ERROR_CHARS]
    if code == AUTH_REQUIRED_CODE and methods:
        text += f"; the agent supports authentication by: {', '.join(methods)} (set 'auth' of the provider)"
    return failed_turn(thread, text, "acp")


def acp_error_text(message: str, data: Any) -> str:
    if not data:
        return message
    details = data.get("details") if isinstance(data, dict) else data
    return f"{message}: {details if isinstance(details, str) else json.dumps(data, ensure_ascii=False)}"
