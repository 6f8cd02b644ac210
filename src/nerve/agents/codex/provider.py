"""The provider `codex`: each query runs in its own process.

One process per turn instead of one for all: closing a turn can kill everything it left running without
affecting other turns, and the environment and working directory can differ from turn to turn. The start
takes a quarter of a second, which is little compared with a model call. The state of a thread is on disk.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Self

from nerve.agents.chunk_stream import AnswerTasks
from nerve.agents.codex import executable
from nerve.agents.codex.approvals import ApprovalRequest, read_approval_request
from nerve.agents.codex.executable import CODEX_KEY_VARIABLES, NETWORK_VARIABLES
from nerve.agents.codex.json_rpc import CodexEnded, JsonRpcPeer, RpcError, RpcMessage
from nerve.agents.codex.notifications import NotificationReader
from nerve.agents.codex.permission_hook import PermissionHook
from nerve.agents.codex.strict_schema import is_strict_schema
from nerve.agents.launch import CLIENT_INFO, agent_environment
from nerve.agents.mcp_relay import serve_tools
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import Capabilities, Chunk, QueryOptions, ThreadStarted, TurnFinished
from nerve.process.line_process import open_line_process
from nerve.project.agent_settings import PERMISSION_MODES
from nerve.project.skills import format_skill_index, select_skills

MAX_TOOL_S = 31_536_000
"""Seconds that a tool may take: as long as a person needs to answer."""
INTERRUPT_TIMEOUT_S = 2.0
"""Seconds that an interrupted turn has to end."""
STOP_GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""
START_RETRY_PAUSES_S = (0.2, 0.4, 0.8, None)
"""Backoff in seconds between starts: of several concurrent first starts in a home, all but one may fail."""
THREAD_LOCK_TIMEOUT_S = 10.0
"""Seconds that a turn waits for another turn of the same thread."""
SCHEMA_PROMPT = "Answer with JSON only. It must match this JSON Schema:\n"

HOOK_EVENTS = (
    *("PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact", "PostCompact", "SessionStart"),
    *("SessionEnd", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop"),
)
MODE_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "ask": {"approvalPolicy": "untrusted"},
    "edits": {"approvalPolicy": "untrusted", "sandbox": "workspace-write"},
    "all": {"approvalPolicy": "on-request"},
    "read": {"approvalPolicy": "never", "sandbox": "read-only"},
}
"""The settings of a thread that enforce a permission mode; the answers to its requests do the rest."""
OWN_SKILL_FOLDER = ".agents"
"""The folder of a project whose skills Codex finds by itself."""

SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
ApprovalPolicy = Literal["untrusted", "on-request", "never"]


class CodexProvider:
    """Codex, driven through `codex app-server`.

    `approval` sets when it asks (`untrusted`: before every command that does more than read), `sandbox` what
    it may do without asking; None leaves either to the user's settings. `home` is its CODEX_HOME, by default
    the user's. `config` holds settings as in config.toml; they are visible in the process list, so they must
    not contain secrets. `env`, and the variables of the parent environment that `pass_env` names, are for
    Codex itself and hidden from the commands it runs; `QueryOptions.env` and the proxy variables are for
    both. `base_url` and `env_key`, the name of the variable with the API key, select any server with the
    Responses API.
    """

    name = "codex"
    capabilities = Capabilities(
        resume=True,
        fork=True,
        schema=True,
        permissions=True,
        steer=True,
        host_tools=True,
        ask_human=False,
        mcp=True,
        skills=True,
        effort=("none", "minimal", "low", "medium", "high", "xhigh"),
        hooks=HOOK_EVENTS,
        instructions=("AGENTS.md", "AGENTS.override.md"),
        modes=PERMISSION_MODES,
        edit_tools=("apply_patch",),
    )

    def __init__(
        self,
        model: str | None = None,
        *,
        sandbox: SandboxMode | None = "workspace-write",
        approval: ApprovalPolicy | None = "on-request",
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
        self._own_variables = (*CODEX_KEY_VARIABLES, *pass_env, *([env_key] if env_key else []))
        server = {"name": "nerve", "base_url": base_url, "wire_api": "responses"}
        server |= {"env_key": env_key} if env_key else {}
        self._config: dict[str, Any] = {}
        if base_url is not None:
            self._config = {f"model_providers.nerve.{name}": value for name, value in server.items()}
            self._config["model_provider"] = "nerve"
        self._config |= config or {}

    def check(self) -> None:
        """Raise Unavailable if the program is not installed."""
        executable.find_executable(self._program)

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        thread_id = ""
        try:
            answers = AnswerTasks()
            async with (
                PermissionHook(options, answers).serve() as hook,
                self._open_peer(cwd, options, hook) as peer,
                serve_tools(tools := McpToolServer(options.host_tools), answers) as own_server,
            ):
                servers = mcp_settings(options.mcp) | own_server_settings(own_server)
                config = await hook.trust_settings(peer) | servers
                thread = await self._open_thread(peer, cwd, resume, options, config)
                thread_id = thread["thread"]["id"]
                yield ThreadStarted(thread_id)  # the caller records it before the prompt is sent
                async with CodexTurn(peer, thread, prompt, options, hook, answers) as turn:
                    while turn.reader.done is None:
                        for chunk in await turn.next_chunks():
                            if not tools.is_recorded(chunk):
                                yield chunk
        except RpcError as error:
            yield TurnFinished(thread_id or resume or "", outcome="failed", error=str(error))

    @asynccontextmanager
    async def _open_peer(
        self, cwd: str | None, options: QueryOptions, hook: PermissionHook
    ) -> AsyncIterator[JsonRpcPeer]:
        """Start the program and complete the handshake."""
        hidden_settings = {
            "shell_environment_policy.exclude": sorted(
                {*self._env, *self._own_variables} - options.env.keys() - set(NETWORK_VARIABLES)
            )
        }
        settings = hidden_settings | self._config | project_settings(options)
        command = executable.app_server_command(
            executable.find_executable(self._program), hook.add_hook_settings(settings)
        )
        env = agent_environment(
            (*NETWORK_VARIABLES, *self._own_variables),
            executable.codex_home_variables(self._home),
            self._env,
            options.env,
        )
        async with AsyncExitStack() as stack:
            for pause in START_RETRY_PAUSES_S:
                peer = JsonRpcPeer(
                    await stack.enter_async_context(
                        open_line_process(command, cwd=cwd, env=env, grace=STOP_GRACE_S)
                    )
                )
                try:
                    await peer.request("initialize", {"clientInfo": CLIENT_INFO})
                    break
                except CodexEnded:
                    if pause is None:
                        raise
                await stack.aclose()
                await asyncio.sleep(pause)
            peer.notify("initialized")
            yield peer

    async def _open_thread(
        self,
        peer: JsonRpcPeer,
        cwd: str | None,
        resume: str | None,
        options: QueryOptions,
        config: RpcMessage,
    ) -> RpcMessage:
        settings: dict[str, Any] = {
            "model": options.model or self._model,
            "sandbox": self._sandbox,
            "approvalPolicy": self._approval,
            "approvalsReviewer": "user",
            "developerInstructions": system_prompt(options, cwd) or None,
            "config": config or None,
            **MODE_SETTINGS.get(options.permissions.mode or "", {}),
        }
        params = {name: value for name, value in settings.items() if value is not None}
        if resume is None:
            # The process already runs in the folder. Codex would permanently trust a folder named here.
            return await peer.request("thread/start", params)
        resume_params = {
            "threadId": resume,
            "excludeTurns": True,
            "cwd": executable.absolute_folder(cwd or "."),
        }
        method = "thread/fork" if options.fork else "thread/resume"
        try:
            return await wait_for_thread_lock(lambda: peer.request(method, {**resume_params, **params}))
        except RpcError as error:
            # The thread to resume is also the one to start: a thread lost in a crash starts again.
            if options.thread != resume or "no rollout found" not in str(error):
                raise
            return await peer.request("thread/start", params)


def system_prompt(options: QueryOptions, cwd: str | None) -> str:
    """Return the system prompt with the skills of the project that Codex does not find by itself."""
    folder = Path(cwd or ".").absolute()
    skills = select_skills(folder, options.skills)
    if options.skills in (None, True):
        skills = [skill for skill in skills if not skill.path.is_relative_to(folder / OWN_SKILL_FOLDER)]
    return "\n\n".join(filter(None, [options.system, format_skill_index(skills)]))


def project_settings(options: QueryOptions) -> dict[str, Any]:
    """Return the settings that keep Codex from reading what the step switches off."""
    settings: dict[str, Any] = {}
    if options.instructions is False:
        settings["project_doc_max_bytes"] = 0
    if options.skills not in (None, True):
        settings["skills.include_instructions"] = False
    return settings


def mcp_settings(servers: Mapping[str, Mapping[str, Any]]) -> RpcMessage:
    """Return the MCP servers as settings of a thread: as arguments, their secrets would be visible."""
    names = {"command": "command", "args": "args", "env": "env", "url": "url", "headers": "http_headers"}
    return {
        f"mcp_servers.{server}": {names[key]: value for key, value in settings.items() if key in names}
        for server, settings in servers.items()
    }


def own_server_settings(servers: Mapping[str, Mapping[str, Any]]) -> RpcMessage:
    """Return the settings of the server with the tools of Nerve, which decides and waits by itself."""
    limits = {"default_tools_approval_mode": "approve", "tool_timeout_sec": MAX_TOOL_S}
    return {f"mcp_servers.{name}": {**server, **limits} for name, server in servers.items()}


class CodexTurn:
    """One prompt and its chunks; leaving the context early interrupts the turn."""

    def __init__(
        self,
        peer: JsonRpcPeer,
        thread: RpcMessage,
        prompt: str,
        options: QueryOptions,
        hook: PermissionHook,
        answers: AnswerTasks,
    ) -> None:
        self._peer, self._options, self._prompt, self._hook = peer, options, prompt, hook
        self._answers = answers
        self._model = thread.get("model")
        self.reader = NotificationReader(thread["thread"]["id"], "", self._model)

    async def __aenter__(self) -> Self:
        thread, schema = self.reader.thread, self._options.schema
        params: RpcMessage = {"threadId": thread, "input": [{"type": "text", "text": self._prompt}]}
        if self._options.effort is not None:
            params["effort"] = self._options.effort
        if schema is not None and is_strict_schema(schema):
            params["outputSchema"] = schema
        elif schema is not None:
            text = SCHEMA_PROMPT + json.dumps(schema, ensure_ascii=False)
            params["input"].append({"type": "text", "text": text})
        answer = await self._peer.request("turn/start", params)
        self.reader = NotificationReader(thread, answer["turn"]["id"], self._model, schema is not None)
        if self._options.steering is not None:
            self._answers.start(self._forward_steering(self._options.steering))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._answers.close()
        if self.reader.done is None:
            await self._interrupt()

    async def _interrupt(self) -> None:
        params = {"threadId": self.reader.thread, "turnId": self.reader.turn}
        self._peer.request_without_reply("turn/interrupt", params)
        try:
            async with asyncio.timeout(INTERRUPT_TIMEOUT_S):
                while self.reader.done is None:
                    message = await self._peer.next_message()
                    list(self.reader.read_notification(message["method"], message.get("params") or {}))
        except (TimeoutError, CodexEnded):
            pass  # the processes are killed in any case

    async def next_chunks(self) -> list[Chunk]:
        """Return the chunks of the next message; permission requests are decided concurrently."""
        message = await self._answers.run(self._peer.next_message())
        method, params = message["method"], message.get("params") or {}
        if "id" in message:
            match read_approval_request(method, params, self.reader.items):
                case ApprovalRequest() as approval:
                    id = str(params.get("itemId"))
                    self._answers.start(self._ask_approval(message["id"], id, approval), message["id"])
                case None:
                    self._peer.reject(message["id"], -32601, f"Unknown method: {method}")
                case answer:
                    self._peer.respond(message["id"], answer)
            return []
        if method == "serverRequest/resolved":
            self._answers.cancel(params["requestId"])
        return list(self.reader.read_notification(method, params))

    async def _ask_approval(self, number: Any, id: str, approval: ApprovalRequest) -> None:
        decision = await self._hook.decide(id, approval.permission)
        if decision.message and not decision.allow:
            self._steer(
                f"This was not allowed: {decision.message}"
            )  # the response itself has no field for a reason
        self._peer.respond(number, approval.respond(decision))

    async def _forward_steering(self, messages: asyncio.Queue[str]) -> None:
        while True:
            text = await messages.get()
            if self.reader.done is not None:  # too late for this turn: leave it for the next one
                messages.put_nowait(text)
                return
            self._steer(text)

    def _steer(self, text: str) -> None:
        """Send a user message during the turn."""
        thread, turn = self.reader.thread, self.reader.turn
        params = {"threadId": thread, "expectedTurnId": turn, "input": [{"type": "text", "text": text}]}
        self._peer.request_without_reply("turn/steer", params)


async def wait_for_thread_lock(ask: Callable[[], Awaitable[RpcMessage]]) -> RpcMessage:
    """Retry while another process holds the thread: after a crash, the old one may still be ending."""
    deadline = asyncio.get_running_loop().time() + THREAD_LOCK_TIMEOUT_S
    while True:
        try:
            return await ask()
        except RpcError as error:
            if "active writer" not in str(error) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.1)
