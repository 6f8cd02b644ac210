"""ClaudeProvider: queries Claude Code, each turn in its own process."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nerve.agents.chunk_stream import EmitChunk, chunks_from_callback
from nerve.agents.claude.mcp_tools import McpToolServer
from nerve.agents.claude.stream_json import StreamJsonReader
from nerve.agents.claude.turn import PRE_TOOL_USE_HOOK, ClaudeTurn
from nerve.agents.launch import agent_environment, translate_launch_errors
from nerve.agents.provider import Capabilities, Chunk, QueryOptions, Unavailable
from nerve.process.line_process import open_line_process

PASSED_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
)
"""Environment variables of the program, passed on in addition to the defaults of child processes."""
FIXED_VARIABLES = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}
"""The process lives for one turn: nothing may keep running after it."""
UNUSABLE_TOOLS = ("AskUserQuestion", "CronCreate", "Monitor", "ScheduleWakeup")
"""Tools that need a terminal user, or wait for something after the turn."""
STOP_GRACE_S = 5.0
"""Seconds that the program has to save its conversation when it is terminated."""
NOT_INSTALLED = (
    "Claude Code is not installed: pip install '.[claude]' in the clone of Nerve, or put `claude` on the PATH"
)


class ClaudeProvider:
    """Run the program of the package claude-agent-sdk, or the `claude` on the PATH.

    The configuration of the project and the user is not loaded, because it can run code: name the sources to
    load in `settings`, of "user", "project" and "local". `pass_env` names variables of the parent environment
    to pass on in addition to the program's own; `env` adds more. `retries` is how often the program retries a
    busy API before the turn ends as `limited`. `QueryOptions.thread`, a UUID, is the id of a new
    conversation; if it is also the one to resume, the conversation is started in case it does not exist.
    """

    name = "claude"
    capabilities = Capabilities(
        resume=True, fork=True, names_threads=True, schema=True, cost=True, permissions=True, host_tools=True
    )

    def __init__(
        self,
        *,
        program: str | None = None,
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        settings: Sequence[str] = (),
        extra_args: Sequence[str] = (),
        retries: int = 4,
    ) -> None:
        self._program, self._env, self._pass_env = program, dict(env or {}), (*PASSED_VARIABLES, *pass_env)
        self._settings, self._extra_args, self._retries = tuple(settings), tuple(extra_args), retries

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        thread = validate_thread_id(options.thread or str(uuid.uuid4()))
        resumed = None if resume is None else validate_thread_id(resume)

        async def work(emit: EmitChunk) -> None:
            if resumed is None or not await self._run_turn(prompt, cwd, options, thread, resumed, emit):
                await self._run_turn(prompt, cwd, options, thread, None, emit)

        return chunks_from_callback(work)

    async def _run_turn(
        self,
        prompt: str,
        cwd: str | None,
        options: QueryOptions,
        thread: str,
        resume: str | None,
        emit: EmitChunk,
    ) -> bool:
        """Return whether the conversation exists; emit nothing if it does not but may be started instead."""
        may_start = resume is not None and resume == options.thread and not options.fork
        reader = StreamJsonReader(options.totals, is_resumed=resume is not None)
        tools = McpToolServer(options.host_tools)
        is_missing = False

        def emit_unless_missing(chunk: Chunk) -> None:
            nonlocal is_missing
            is_missing = may_start and reader.is_missing_session
            if not is_missing:
                emit(chunk)

        program = self._program or await asyncio.to_thread(find_program)
        if program is None:
            raise Unavailable(NOT_INSTALLED)
        argv = [program, *self._arguments(options, thread, resume, tools), *self._extra_args]
        with translate_launch_errors(argv[0], NOT_INSTALLED):
            async with open_line_process(
                argv, cwd=cwd, env=self._environment(options), grace=STOP_GRACE_S
            ) as process:
                request: dict[str, Any] = {
                    "subtype": "initialize",
                    "hooks": {"PreToolUse": [PRE_TOOL_USE_HOOK]},
                }
                if options.system:
                    # No snapshot: a later turn may use another system prompt than the first one.
                    request |= {"appendSystemPrompt": options.system, "systemPromptSnapshot": False}
                if options.schema is not None:
                    request["jsonSchema"] = dict(options.schema)
                await ClaudeTurn(process, reader, options, tools, emit_unless_missing).run(prompt, request)
        return not is_missing

    def check(self) -> None:
        """Raise Unavailable if the program is not installed."""
        if self._program is None and find_program() is None:
            raise Unavailable(NOT_INSTALLED)

    def _arguments(
        self, options: QueryOptions, thread: str, resume: str | None, tools: McpToolServer
    ) -> list[str]:
        """Return the arguments, each value joined to its option so that it cannot be read as an option."""
        denied_tools = [pattern for pattern in options.permissions.deny if pattern.isidentifier()]
        arguments = [
            "--print",
            "--verbose",
            "--input-format=stream-json",
            "--output-format=stream-json",
            "--include-partial-messages",
            "--permission-prompt-tool=stdio",
            "--permission-mode=manual",
            f"--setting-sources={','.join(self._settings)}",
            "--strict-mcp-config",
            f"--mcp-config={json.dumps(tools.config)}",
            f"--disallowedTools={','.join((*UNUSABLE_TOOLS, *denied_tools))}",
        ]
        if resume is not None:
            arguments.append(f"--resume={resume}")
        if resume is None or options.fork:
            arguments.append(f"--session-id={thread}")
        if options.fork and resume is not None:
            arguments.append("--fork-session")
        if options.model:
            arguments.append(f"--model={options.model}")
        if options.tools:
            arguments.append(f"--allowedTools={','.join(options.tools)}")
        if options.max_turns is not None:
            arguments.append(f"--max-turns={options.max_turns}")
        return arguments

    def _environment(self, options: QueryOptions) -> dict[str, str]:
        fixed = {**FIXED_VARIABLES, "CLAUDE_CODE_MAX_RETRIES": str(self._retries)}
        return agent_environment(self._pass_env, fixed, self._env, options.env)


def validate_thread_id(thread: str) -> str:
    """Return the UUID; the program would use anything else as a search term."""
    try:
        return str(uuid.UUID(thread))
    except ValueError as error:
        raise ValueError(f"Thread of provider 'claude' must be a UUID, got {thread!r}") from error


def find_program() -> str | None:
    """Return the bundled program of the package, without importing it, or the one on the PATH."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder, "_bundled", "claude")
        if os.access(bundled, os.X_OK):
            return str(bundled)
    return shutil.which("claude")
