"""CommandProvider: any command that reads a prompt from stdin and prints the answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nerve.agents.chunk_stream import AnswerTasks, EmitChunk, chunks_from_callback
from nerve.agents.launch import agent_environment, translate_launch_errors
from nerve.agents.mcp_relay import serve_tools
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import (
    AssistantText,
    Capabilities,
    Chunk,
    QueryOptions,
    ThreadStarted,
    TurnFinished,
)
from nerve.agents.rate_limits import failed_turn
from nerve.process import Exit, run_command

MCP_CONFIG_VARIABLE = "NERVE_MCP_CONFIG"
MAX_ANSWER_BYTES = 1_000_000
"""Bytes kept from the head, and from the tail, of an answer."""
MAX_ERROR_CHARS = 2_000
"""Characters of stderr that a failure message includes."""


class CommandProvider:
    """Write the system prompt, if any, and the prompt to the command's stdin; its stdout is the answer.

    A non-zero exit code is a failure, or a rate limit if the end of the output says so; empty output is a
    failure too. The command does not store conversations, so they cannot be resumed. `env` is added to the
    minimal environment of the process; `pass_env` names variables of the parent environment to pass on. With
    `mcp`, the command finds its MCP servers in the file that the variable `NERVE_MCP_CONFIG` names, in the
    form that Claude Code reads with `--mcp-config`.
    """

    name = "command"

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        grace: float = 5.0,
        mcp: bool = False,
    ) -> None:
        if isinstance(argv, str) or not argv:
            raise ValueError(f"argv must be a list of a program and its arguments, got {argv!r}")
        self.argv = [str(argument) for argument in argv]
        self.env, self.pass_env, self.grace = dict(env or {}), tuple(pass_env), grace
        self.capabilities = Capabilities(ask_human=False, host_tools=mcp, mcp=mcp)

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        if resume is not None:
            raise ValueError(f"Command '{self.argv[0]}' does not support resuming a conversation")
        if restrictions := options.permissions.restrictions:
            raise ValueError(
                f"Provider 'command' cannot enforce the permissions ({restrictions[0]}): "
                f"'{self.argv[0]}' never asks for permission"
            )
        return chunks_from_callback(lambda emit: self._run_turn(prompt, cwd, options, emit))

    async def _run_turn(self, prompt: str, cwd: str | None, options: QueryOptions, emit: EmitChunk) -> None:
        """Run the command; a turn without output fails, and a failure may be a rate limit."""
        thread, remaining_chars = options.thread or str(uuid.uuid4()), MAX_ANSWER_BYTES
        emit(ThreadStarted(thread))

        def on_output(stream: str, text: str) -> None:
            nonlocal remaining_chars
            if stream == "stdout" and remaining_chars > 0:
                emit(AssistantText(text[:remaining_chars], partial=True))
                remaining_chars -= len(text)

        answers, tools = AnswerTasks(), McpToolServer(options.host_tools)
        command_input = f"{options.system}\n\n{prompt}" if options.system else prompt
        with (
            translate_launch_errors(self.argv[0], "install it, or correct the provider's argv"),
            TemporaryDirectory(prefix="nerve-") as private,
        ):
            async with serve_tools(tools, answers) as own_servers:
                try:
                    command_exit = await answers.run(
                        run_command(
                            self.argv,
                            cwd=cwd,
                            env=agent_environment(
                                self.pass_env,
                                self.env,
                                options.env,
                                write_mcp_config(Path(private), {**options.mcp, **own_servers}),
                            ),
                            stdin=command_input.encode(errors="replace"),
                            on_output=on_output,
                            keep=MAX_ANSWER_BYTES,
                            grace=self.grace,
                        )
                    )
                finally:
                    await answers.close()
        if command_exit.stdout:
            emit(AssistantText(command_exit.stdout))
        error = command_failure_text(self.argv[0], command_exit)
        if command_exit.code != 0:
            emit(failed_turn(thread, error, "command"))
        elif command_exit.stdout.strip():
            emit(TurnFinished(thread))
        else:
            emit(TurnFinished(thread, outcome="failed", error=error))


def write_mcp_config(folder: Path, servers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Write MCP servers into a file of a private folder; return the variable that names it."""
    if not servers:
        return {}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return {MCP_CONFIG_VARIABLE: str(path)}


def command_failure_text(program: str, command_exit: Exit) -> str:
    code = command_exit.code
    description = (
        f"exit code {code}" if code > 0 else f"terminated by signal {-code}" if code else "no output"
    )
    output = (command_exit.stderr.strip() or command_exit.stdout.strip())[-MAX_ERROR_CHARS:]
    return f"{program}: {description}: {output}" if output else f"{program}: {description}"
