"""BashNode: a shell command as a leaf, in a process tree of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from nerve.core.checks import a_folder, a_mapping, a_text, told
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.values import encode
from nerve.errors import NotJson
from nerve.process import Exit, child_env, run_command

ENV_LIMIT = 100_000
"""Linux refuses an environment variable of 131,072 bytes; larger inputs come on standard input only."""


LINE = 1000
"""Characters of the last line on standard error that are part of the failure; `stderr` has all of it."""
STREAMED, EACH = 16 * 1024 * 1024, 200
"""Characters that are told as they come, and what it costs to tell any: a command may go on for ever."""
BEAT = 0.5
"""Seconds between the words that more came after that."""


class Streamed:
    """Tells what a command says as it says it; from some length on only that there was more."""

    def __init__(self, context: ExecutionContext) -> None:
        self._context, self._left = context, STREAMED
        self._more, self._due = 0, 0.0

    def __call__(self, stream: str, text: str) -> None:
        self._left -= len(text) + EACH
        if self._left < 0:
            self._more += len(text)
            if (now := time.monotonic()) < self._due:
                return
            self._due = now + BEAT
            text = f"\n[{self._more:,} characters more, not told one by one]\n"
        self._context.emit("output_chunk", {"stream": stream, "text": text})


class BashNode(Node):
    """Runs `command` with the input on standard input and in NERVE_INPUT.

    Without a `command` the input itself is the command, as typed by a person. The output is what it
    printed, `success` is exit code 0. Cancelling or timing out ends the whole process tree. `cwd` is a
    folder of the session's project, or any other by its whole path; without it, it runs in the project.
    """

    def __init__(
        self,
        id: str | None,
        session: Names | None,
        command: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        **policy: Any,
    ) -> None:
        if command is not None:
            a_text(f"command of '{id}'", command)
        if cwd is not None:
            a_folder(f"cwd of '{id}'", cwd)
        self.command, self.cwd, self.env = command, cwd, variables(f"env of '{id}'", env)
        super().__init__(id, session, **policy)

    async def execute(self, context: ExecutionContext) -> Result:
        if context.overrides.get("command", self.command) is None and not isinstance(context.input, str):
            return Result.failed(
                f"without a command, the input of '{self.id}' is the command, and that is text, not"
                f" {told(context.input)}; give it as command, and the input as its input",
                "ValueError",
            )
        try:
            done = await self._run(context)
        except (OSError, NotJson) as error:
            return Result.failed(f"could not start bash: {error}", type(error).__name__)
        attributes = {"exit_code": done.code, "stderr": done.stderr}
        if done.dropped:
            attributes["dropped_bytes"] = done.dropped
        if done.code == 0:
            return Result.ok(done.stdout, attributes)
        return Result.failed(failure(done.code, done.stderr), "ExitCode", done.stdout, attributes)

    async def _run(self, context: ExecutionContext) -> Exit:
        command: str | None = context.overrides.get("command", self.command)
        given: bytes | None = as_bytes(context.input)
        if command is None:
            command, given = str(context.input), None
        return await run_command(
            ["bash", "-c", command],
            cwd=self._folder(),
            env=self._environment(context, given),
            stdin=given or b"",
            on_output=Streamed(context),
        )

    def _folder(self) -> str | os.PathLike[str] | None:
        """Where it runs: in the project of its session, or where the engine does."""
        if self.session is None or self.cwd == "":
            return self.cwd
        return self.session.project / (self.cwd or "")

    def _environment(self, context: ExecutionContext, given: bytes | None) -> dict[str, str]:
        extra = {**self.env, "NERVE_IDEMPOTENCY_KEY": context.idempotency_key, "NERVE_RUN_ID": context.run_id}
        if given is not None and len(given) < ENV_LIMIT and b"\0" not in given:
            extra["NERVE_INPUT"] = os.fsdecode(given)
        return child_env(extra)


def variables(what: str, given: Any) -> dict[str, str]:
    """Variables of an environment, as people give them."""
    made = {} if given is None else dict(a_mapping(what, given))
    for name, value in made.items():
        a_text(f"a name in {what}", name)
        a_text(f"{name!r} in {what}", value)
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"a name in {what} is not empty and has neither '=' nor NUL, got {name!r}")
    return made


def as_bytes(value: Any) -> bytes:
    """A string as it is, nothing as nothing, anything else as JSON."""
    text = value if isinstance(value, str) else "" if value is None else encode(value)
    return text.encode("utf-8", "replace")


def failure(code: int, stderr: str) -> str:
    how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    last = stderr.strip().rsplit("\n", 1)[-1]
    if len(last) > LINE:
        last = f"…{last[-LINE:]}"
    return f"{how}: {last}" if last else how
