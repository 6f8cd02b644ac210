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
from tempfile import TemporaryDirectory
from typing import Any

from nerve.agents.chunk_stream import EmitChunk, chunks_from_callback
from nerve.agents.claude.stream_json import StreamJsonReader
from nerve.agents.claude.turn import PRE_TOOL_USE_HOOK, ClaudeTurn
from nerve.agents.launch import agent_environment, translate_launch_errors
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import Capabilities, Chunk, QueryOptions, Unavailable
from nerve.process.line_process import open_line_process
from nerve.project.agent_settings import PERMISSION_MODES
from nerve.project.skills import find_instructions, format_skill_index, select_skills

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
HOOK_EVENTS = (
    *("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "Notification"),
    *("UserPromptSubmit", "UserPromptExpansion", "SessionStart", "SessionEnd", "Stop", "StopFailure"),
    *("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "PermissionRequest", "PermissionDenied"),
    *("TaskCreated", "TaskCompleted", "InstructionsLoaded", "CwdChanged", "FileChanged"),
)
INSTRUCTION_FILES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
INSTRUCTIONS_VARIABLE = "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"
NO_INSTRUCTIONS_VARIABLE = "CLAUDE_CODE_DISABLE_CLAUDE_MDS"
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
        resume=True,
        fork=True,
        names_threads=True,
        schema=True,
        cost=True,
        permissions=True,
        host_tools=True,
        mcp=True,
        skills=True,
        subagents=True,
        effort=("low", "medium", "high", "xhigh", "max"),
        hooks=HOOK_EVENTS,
        instructions=INSTRUCTION_FILES,
        modes=PERMISSION_MODES,
        edit_tools=("Edit", "Write", "NotebookEdit"),
        read_tools=("Read", "Glob", "Grep", "LS", "NotebookRead", "TodoWrite"),
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
        folder = absolute_folder(cwd)
        world = self._world_arguments(options, folder)
        with TemporaryDirectory(prefix="nerve-") as private, translate_launch_errors(program, NOT_INSTALLED):
            files = write_settings_files(Path(private), options, tools)
            argv = [program, *self._arguments(options, thread, resume), *world, *files, *self._extra_args]
            async with open_line_process(
                argv, cwd=cwd, env=self._environment(options, folder), grace=STOP_GRACE_S
            ) as process:
                request: dict[str, Any] = {
                    "subtype": "initialize",
                    "hooks": {"PreToolUse": [PRE_TOOL_USE_HOOK]},
                }
                if system := self._system_prompt(options, folder):
                    # No snapshot: a later turn may use another system prompt than the first one.
                    request |= {"appendSystemPrompt": system, "systemPromptSnapshot": False}
                if options.subagents:
                    request["agents"] = {
                        name: define_subagent(one) for name, one in options.subagents.items()
                    }
                if options.schema is not None:
                    request["jsonSchema"] = dict(options.schema)
                await ClaudeTurn(process, reader, options, tools, emit_unless_missing).run(prompt, request)
        return not is_missing

    def check(self) -> None:
        """Raise Unavailable if the program is not installed."""
        if self._program is None and find_program() is None:
            raise Unavailable(NOT_INSTALLED)

    def _system_prompt(self, options: QueryOptions, folder: Path) -> str:
        """Return the system prompt with the skills of the project.

        Reading a skill as a file gives it no rights: what it may use without asking is not its decision.
        """
        is_native = "project" in self._settings and options.skills in (None, True)
        skills = [] if is_native else select_skills(folder, options.skills)
        return "\n\n".join(filter(None, [options.system, format_skill_index(skills)]))

    def _world_arguments(self, options: QueryOptions, folder: Path) -> list[str]:
        arguments = []
        if self._reads_instructions(options, folder):
            # A further folder that is the working folder: its CLAUDE.md is read, its settings are not.
            arguments.append(f"--add-dir={folder}")
        if self._settings and options.skills not in (None, True):
            arguments.append("--disable-slash-commands")
        if options.effort is not None:
            arguments.append(f"--effort={options.effort}")
        return arguments

    def _reads_instructions(self, options: QueryOptions, folder: Path) -> bool:
        """Whether Nerve has to make the program read the instruction files of the project."""
        is_needed = options.instructions is not False and "project" not in self._settings
        return is_needed and bool(find_instructions(folder, INSTRUCTION_FILES))

    def _arguments(self, options: QueryOptions, thread: str, resume: str | None) -> list[str]:
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

    def _environment(self, options: QueryOptions, folder: Path) -> dict[str, str]:
        fixed = {**FIXED_VARIABLES, "CLAUDE_CODE_MAX_RETRIES": str(self._retries)}
        if options.instructions is False:
            fixed[NO_INSTRUCTIONS_VARIABLE] = "1"
        elif self._reads_instructions(options, folder):
            fixed[INSTRUCTIONS_VARIABLE] = "1"
        return agent_environment(self._pass_env, fixed, self._env, options.env)


def write_settings_files(folder: Path, options: QueryOptions, tools: McpToolServer) -> list[str]:
    """Write what may hold secrets into files of a private folder; return the arguments that name them."""
    servers = {
        name: {"type": "http" if "url" in server else "stdio", **server}
        for name, server in {**options.mcp, **tools.config}.items()
    }
    settings: dict[str, Any] = {"mcp-config": {"mcpServers": servers}}
    if options.hooks:
        settings["settings"] = {"hooks": {event: nest_hooks(hooks) for event, hooks in options.hooks.items()}}
    for name, content in settings.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return [f"--{name}={folder / name}.json" for name in settings]


def define_subagent(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return a subagent in the form of Claude Code."""
    names = {"denied_tools": "disallowedTools", "max_turns": "maxTurns"}
    return {names.get(key, key): value for key, value in agent.items()}


def nest_hooks(hooks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return hooks in the form of Claude Code, which groups them by matcher."""
    entries = []
    for hook in hooks:
        command = {key: hook[key] for key in ("command", "timeout") if key in hook}
        matcher = {"matcher": hook["matcher"]} if "matcher" in hook else {}
        entries.append({**matcher, "hooks": [{"type": "command", **command}]})
    return entries


def absolute_folder(cwd: str | None) -> Path:
    return Path(cwd or ".").absolute()


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
