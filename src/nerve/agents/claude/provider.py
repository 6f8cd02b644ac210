"""ClaudeProvider: asks Claude Code, each turn in a process of its own."""

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

from nerve.agents.claude.host_tools import HostTools
from nerve.agents.claude.lines import Lines
from nerve.agents.claude.turn import GUARD, Turn
from nerve.agents.port import Capabilities, Chunk, Options, Unavailable
from nerve.agents.starting import environment, starting
from nerve.agents.stream import Tell, told
from nerve.process.talk import talk

PASSED = (
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
"""The variables of ours that are the program's own; it gets no others beside those every child gets."""
FIXED = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}
"""A turn is the whole life of the process: nothing may be left to go on after it."""
OUT_OF_PLACE = ("AskUserQuestion", "CronCreate", "Monitor", "ScheduleWakeup")
"""Tools that need a person at a terminal, or wait for something after the turn."""
GRACE = 5.0
"""Seconds that the program has to write down its conversation when it is told to end."""
MISSING = "Claude Code is not installed: pip install 'nerve[claude]', or put `claude` on the PATH"


class ClaudeProvider:
    """Drives the program of the package claude-agent-sdk, or else the `claude` on the PATH.

    The configuration of the project and of the user is left out, because it can run code: name the sources
    to use in `settings`, of "user", "project" and "local". `pass_env` names variables of our environment that
    the program gets beside its own, `env` gives it more. `retries` is how often the program asks a busy API
    again before the turn is over as `limited`. A new conversation has the name `Options.thread`, a UUID; if
    that is also the one to resume, it is begun in case it does not exist.
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
        self._program, self._env, self._pass_env = program, dict(env or {}), (*PASSED, *pass_env)
        self._settings, self._extra_args, self._retries = tuple(settings), tuple(extra_args), retries

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        thread = checked(options.thread or str(uuid.uuid4()))
        known = None if resume is None else checked(resume)

        async def work(tell: Tell) -> None:
            if known is None or not await self._turn(prompt, cwd, options, thread, known, tell):
                await self._turn(prompt, cwd, options, thread, None, tell)

        return told(work)

    async def _turn(
        self, prompt: str, cwd: str | None, options: Options, thread: str, resume: str | None, tell: Tell
    ) -> bool:
        """Whether there was such a conversation; if it may be begun instead, nothing is told of that."""
        begins = resume is not None and resume == options.thread and not options.fork
        lines = Lines(options.totals, resumed=resume is not None)
        tools = HostTools(options.host_tools)
        missing = False

        def unless_missing(chunk: Chunk) -> None:
            nonlocal missing
            missing = begins and lines.missing
            if not missing:
                tell(chunk)

        argv = [await self._found(), *self._arguments(options, thread, resume, tools), *self._extra_args]
        with starting(argv[0], MISSING):
            async with talk(argv, cwd=cwd, env=self._environment(options), grace=GRACE) as program:
                await Turn(program, lines, options, tools, unless_missing).run(prompt, begin(options))
        return not missing

    def check(self) -> None:
        """Raise Unavailable if there is no program to start."""
        if self._program is None and find_program() is None:
            raise Unavailable(MISSING)

    async def _found(self) -> str:
        program = self._program or await asyncio.to_thread(find_program)
        if program is None:
            raise Unavailable(MISSING)
        return program

    def _arguments(self, options: Options, thread: str, resume: str | None, tools: HostTools) -> list[str]:
        """Every value stands in one word with its option, so that none is taken for an option."""
        said = [
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
            f"--disallowedTools={','.join((*OUT_OF_PLACE, *whole(options.permissions.deny)))}",
        ]
        if resume is not None:
            said.append(f"--resume={resume}")
        if resume is None or options.fork:
            said.append(f"--session-id={thread}")
        if options.fork and resume is not None:
            said.append("--fork-session")
        if options.model:
            said.append(f"--model={options.model}")
        if options.tools:
            said.append(f"--allowedTools={','.join(options.tools)}")
        if options.max_turns is not None:
            said.append(f"--max-turns={options.max_turns}")
        return said

    def _environment(self, options: Options) -> dict[str, str]:
        ours = {**FIXED, "CLAUDE_CODE_MAX_RETRIES": str(self._retries)}
        return environment(self._pass_env, ours, self._env, options.env)


def checked(thread: str) -> str:
    """The program takes anything but a UUID as words to search for."""
    try:
        return str(uuid.UUID(thread))
    except ValueError as error:
        raise ValueError(f"a conversation of claude is named by a UUID, not {thread!r}") from error


def whole(patterns: Sequence[str]) -> list[str]:
    """The tools that are denied by their names, with whatever they would be used on."""
    return [pattern for pattern in patterns if pattern.isidentifier()]


def begin(options: Options) -> dict[str, Any]:
    """The first word to the program: what does not belong in the list of processes."""
    said: dict[str, Any] = {"subtype": "initialize", "hooks": {"PreToolUse": [GUARD]}}
    if options.system:
        # Without a snapshot: the conversation may go on with another system prompt than it began with.
        said |= {"appendSystemPrompt": options.system, "systemPromptSnapshot": False}
    if options.schema is not None:
        said["jsonSchema"] = dict(options.schema)
    return said


def find_program() -> str | None:
    """The program that the package brings along, without importing it; or the one on the PATH."""
    found = importlib.util.find_spec("claude_agent_sdk")
    for folder in (found.submodule_search_locations or ()) if found else ():
        bundled = Path(folder, "_bundled", "claude")
        if os.access(bundled, os.X_OK):
            return str(bundled)
    return shutil.which("claude")
