"""BashNode: a shell command as a leaf, in its own process tree."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import encode_json
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.safe_path import resolve_inside
from nerve.core.trace_context import trace_environment
from nerve.core.validation import describe_value, require_mapping, require_path, require_str
from nerve.errors import NotJson
from nerve.process import Exit, child_env, run_command

MAX_ENV_BYTES = 100_000
"""Linux limits an environment variable to 131,072 bytes; larger inputs are passed on standard input only."""

MAX_ERROR_LINE_CHARS = 1000
"""Characters of the last line of standard error in the error message; `stderr` has all of it."""
MAX_STREAMED_CHARS, CHUNK_COST_CHARS = 16 * 1024 * 1024, 200
"""Characters that are streamed as events, and the overhead counted per event; a command can run forever."""
OMITTED_NOTICE_INTERVAL_S = 0.5
"""Seconds between the notices about omitted output."""


class OutputStreamer:
    """Emits the output of a command as events; beyond a length, only notices about omitted characters."""

    def __init__(self, context: ExecutionContext) -> None:
        self._context, self._remaining_chars = context, MAX_STREAMED_CHARS
        self._omitted_chars, self._next_notice_at = 0, 0.0

    def __call__(self, stream: str, text: str) -> None:
        self._remaining_chars -= len(text) + CHUNK_COST_CHARS
        if self._remaining_chars < 0:
            self._omitted_chars += len(text)
            if (now := time.monotonic()) < self._next_notice_at:
                return
            self._next_notice_at = now + OMITTED_NOTICE_INTERVAL_S
            text = f"\n[{self._omitted_chars:,} more characters omitted]\n"
        self._context.emit(WorkflowEventType.OUTPUT_CHUNK, {"stream": stream, "text": text})


class BashNode(Node):
    """Runs `command` with the input on standard input and in NERVE_INPUT.

    Without a `command`, the input is the command. The output is the standard output; `success` means exit
    code 0. Cancellation and timeouts end the whole process tree. `cwd` is a directory relative to the
    project of the session, or an absolute path; the default is the project. With `inside_project`, a
    directory outside of the project is an error.
    """

    changes_files: ClassVar[bool] = True

    def __init__(
        self,
        id: str | None,
        session: NodeRegistry | None,
        command: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        inside_project: bool = False,
        **policy: Any,
    ) -> None:
        if command is not None:
            require_str(f"command of '{id}'", command)
        if cwd is not None:
            require_path(f"cwd of '{id}'", cwd)
        self.command, self.env = command, require_env(f"env of '{id}'", env)
        self.cwd, self.inside_project = None if cwd is None else os.fspath(cwd), inside_project
        super().__init__(id, session, **policy)

    async def execute(self, context: ExecutionContext) -> Result:
        if context.overrides.get("command", self.command) is None and not isinstance(context.input, str):
            return Result.failed(
                f"without a command, the input of '{self.id}' is the command and must be a string, got"
                f" {describe_value(context.input)}; set command, and pass the input separately",
                "ValueError",
            )
        try:
            exit_info = await self._run_bash(context)
        except (OSError, NotJson) as error:
            return Result.failed(f"could not start bash: {error}", type(error).__name__)
        attributes = {"exit_code": exit_info.code, "stderr": exit_info.stderr}
        if exit_info.dropped:
            attributes["dropped_bytes"] = exit_info.dropped
        if exit_info.code == 0:
            return Result.ok(exit_info.stdout, attributes)
        return Result.failed(
            exit_message(exit_info.code, exit_info.stderr), "ExitCode", exit_info.stdout, attributes
        )

    async def _run_bash(self, context: ExecutionContext) -> Exit:
        command: str | None = context.overrides.get("command", self.command)
        stdin_bytes: bytes | None = encode_stdin(context.input)
        if command is None:
            command, stdin_bytes = str(context.input), None
        return await run_command(
            ["bash", "-c", command],
            cwd=self._working_directory(context),
            env=self._environment(context, stdin_bytes),
            stdin=stdin_bytes or b"",
            on_output=OutputStreamer(context),
        )

    def _working_directory(self, context: ExecutionContext) -> str | os.PathLike[str] | None:
        """Return the directory of the command: in the project, or the current one without a session.

        It is resolved here, because the project may have another place on the machine of the command.
        """
        if context.folder is not None:
            return context.resolve_directory(self.cwd, is_confined=self.inside_project)
        session = self.session or context.session
        if session is not None and self.inside_project:
            return resolve_inside(session.project, self.cwd or "")
        if session is None or self.cwd == "":
            return self.cwd
        return session.project / (self.cwd or "")

    def _environment(self, context: ExecutionContext, stdin_bytes: bytes | None) -> dict[str, str]:
        extra = {
            **trace_environment(context),
            **self.env,
            "NERVE_IDEMPOTENCY_KEY": context.idempotency_key,
            "NERVE_RUN_ID": context.run_id,
        }
        if stdin_bytes is not None and len(stdin_bytes) < MAX_ENV_BYTES and b"\0" not in stdin_bytes:
            extra["NERVE_INPUT"] = os.fsdecode(stdin_bytes)
        return child_env(extra)


def require_env(what: str, mapping: Any) -> dict[str, str]:
    """Return environment variables; ValueError for an invalid name or value."""
    env = {} if mapping is None else dict(require_mapping(what, mapping))
    for name, value in env.items():
        require_str(f"a name in {what}", name)
        require_str(f"{name!r} in {what}", value)
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"a name in {what} must not be empty or contain '=' or NUL, got {name!r}")
    return env


def encode_stdin(value: Any) -> bytes:
    """Return a string as it is, None as b"", and any other value as JSON."""
    text = value if isinstance(value, str) else "" if value is None else encode_json(value)
    return text.encode("utf-8", "replace")


def exit_message(code: int, stderr: str) -> str:
    how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    last = stderr.strip().rsplit("\n", 1)[-1]
    if len(last) > MAX_ERROR_LINE_CHARS:
        last = f"…{last[-MAX_ERROR_LINE_CHARS:]}"
    return f"{how}: {last}" if last else how
