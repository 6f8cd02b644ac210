"""CommandProvider: any command line that takes a prompt on its input and prints the answer."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from nerve.agents.limits import LIMIT, resets_at
from nerve.agents.port import Assistant, Begun, Capabilities, Chunk, Done, Options
from nerve.agents.starting import environment, starting
from nerve.agents.stream import Tell, told
from nerve.process import Exit, run_command

ANSWER = 1_000_000
"""Bytes of the head, and of the tail, of an answer that are kept."""
ERROR = 2_000
"""Characters of the error stream that a failure shows."""


class CommandProvider:
    """Writes the system prompt, if any, and the prompt to the command's input; what it prints is the answer.

    An exit code other than 0 is a failure, or a limit if its last words are about one; to print nothing is a
    failure too. The command keeps no conversation, so nothing can be resumed. `env` is added to the few
    variables that its processes get; `pass_env` names variables of ours that they get too.
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
            raise ValueError(f"a command is a list of a program and its arguments, not {argv!r}")
        self.argv = [str(word) for word in argv]
        self.env, self.pass_env, self.grace = dict(env or {}), tuple(pass_env), grace

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Options
    ) -> AsyncIterator[Chunk]:
        if resume is not None:
            raise ValueError(f"the command '{self.argv[0]}' keeps no conversation to go on with")
        if restricting := options.permissions.restricts:
            raise ValueError(
                f"command cannot keep to the permissions ({restricting[0]}): '{self.argv[0]}' never asks"
            )
        return told(Turn(self, prompt, cwd, options).run)


class Turn:
    """One run of the command."""

    def __init__(self, provider: CommandProvider, prompt: str, cwd: str | None, options: Options) -> None:
        self.provider, self.cwd, self.options = provider, cwd, options
        self.input = f"{options.system}\n\n{prompt}" if options.system else prompt
        self.thread = options.thread or str(uuid.uuid4())
        self.room = ANSWER

    async def run(self, tell: Tell) -> None:
        tell(Begun(self.thread))

        def heard(stream: str, text: str) -> None:
            if stream == "stdout" and self.room > 0:
                tell(Assistant(text[: self.room], partial=True))
                self.room -= len(text)

        ended = await self.ended(heard)
        if ended.stdout:
            tell(Assistant(ended.stdout))
        tell(self.done(ended))

    def done(self, ended: Exit) -> Done:
        """How it ended: an answer is something that was said; what went wrong may be a limit."""
        if ended.code == 0 and ended.stdout.strip():
            return Done(self.thread)
        error = failure(self.provider.argv[0], ended)
        if ended.code != 0 and LIMIT.search(error):
            return Done(self.thread, outcome="limited", error=error, resets_at=resets_at(error))
        return Done(self.thread, outcome="failed", error=error)

    async def ended(self, heard: Callable[[str, str], None]) -> Exit:
        provider = self.provider
        with starting(provider.argv[0], "install it, or correct the provider's argv"):
            return await run_command(
                provider.argv,
                cwd=self.cwd,
                env=environment(provider.pass_env, provider.env, self.options.env),
                stdin=self.input.encode(errors="replace"),
                on_output=heard,
                keep=ANSWER,
                grace=provider.grace,
            )


def failure(program: str, ended: Exit) -> str:
    how = f"exit code {ended.code}" if ended.code >= 0 else f"ended by signal {-ended.code}"
    if ended.code == 0:
        how = "it printed no answer"
    said = (ended.stderr.strip() or ended.stdout.strip())[-ERROR:]
    return f"{program}: {how}: {said}" if said else f"{program}: {how}"
