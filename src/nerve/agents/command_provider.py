"""CommandProvider: any command that reads a prompt from stdin and prints the answer."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from nerve.agents.chunk_stream import EmitChunk, chunks_from_callback
from nerve.agents.launch import agent_environment, translate_launch_errors
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

MAX_ANSWER_BYTES = 1_000_000
"""Bytes kept from the head, and from the tail, of an answer."""
MAX_ERROR_CHARS = 2_000
"""Characters of stderr that a failure message includes."""


class CommandProvider:
    """Write the system prompt, if any, and the prompt to the command's stdin; its stdout is the answer.

    A non-zero exit code is a failure, or a rate limit if the end of the output says so; empty output is a
    failure too. The command does not store conversations, so they cannot be resumed. `env` is added to the
    minimal environment of the process; `pass_env` names variables of the parent environment to pass on.
    """

    name = "command"
    capabilities = Capabilities()

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        grace: float = 5.0,
    ) -> None:
        if isinstance(argv, str) or not argv:
            raise ValueError(f"argv must be a list of a program and its arguments, got {argv!r}")
        self.argv = [str(argument) for argument in argv]
        self.env, self.pass_env, self.grace = dict(env or {}), tuple(pass_env), grace

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
        return chunks_from_callback(CommandTurn(self, prompt, cwd, options).run)


class CommandTurn:
    """One run of the command."""

    def __init__(
        self, provider: CommandProvider, prompt: str, cwd: str | None, options: QueryOptions
    ) -> None:
        self.provider, self.cwd, self.options = provider, cwd, options
        self.input = f"{options.system}\n\n{prompt}" if options.system else prompt
        self.thread = options.thread or str(uuid.uuid4())
        self.remaining_chars = MAX_ANSWER_BYTES

    async def run(self, emit: EmitChunk) -> None:
        emit(ThreadStarted(self.thread))

        def on_output(stream: str, text: str) -> None:
            if stream == "stdout" and self.remaining_chars > 0:
                emit(AssistantText(text[: self.remaining_chars], partial=True))
                self.remaining_chars -= len(text)

        command_exit = await self.run_process(on_output)
        if command_exit.stdout:
            emit(AssistantText(command_exit.stdout))
        emit(self.finished_turn(command_exit))

    def finished_turn(self, command_exit: Exit) -> TurnFinished:
        """Return the outcome: a turn without output fails, and a failure may be a rate limit."""
        if command_exit.code == 0 and command_exit.stdout.strip():
            return TurnFinished(self.thread)
        error = command_failure_text(self.provider.argv[0], command_exit)
        if command_exit.code == 0:
            return TurnFinished(self.thread, outcome="failed", error=error)
        return failed_turn(self.thread, error, "command")

    async def run_process(self, on_output_chunk: Callable[[str, str], None]) -> Exit:
        provider = self.provider
        with translate_launch_errors(provider.argv[0], "install it, or correct the provider's argv"):
            return await run_command(
                provider.argv,
                cwd=self.cwd,
                env=agent_environment(provider.pass_env, provider.env, self.options.env),
                stdin=self.input.encode(errors="replace"),
                on_output=on_output_chunk,
                keep=MAX_ANSWER_BYTES,
                grace=provider.grace,
            )


def command_failure_text(program: str, command_exit: Exit) -> str:
    description = (
        f"exit code {command_exit.code}"
        if command_exit.code >= 0
        else f"terminated by signal {-command_exit.code}"
    )
    if command_exit.code == 0:
        description = "no output"
    output = (command_exit.stderr.strip() or command_exit.stdout.strip())[-MAX_ERROR_CHARS:]
    return f"{program}: {description}: {output}" if output else f"{program}: {description}"
