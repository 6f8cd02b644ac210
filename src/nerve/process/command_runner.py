"""Run one command and return its output; none of its descendants outlives the call."""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nerve.process.environment import child_env
from nerve.process.process_tree import ProcessTree

DEFAULT_KEEP_BYTES = 16 * 1024 * 1024
DRAIN_TIMEOUT_S = (
    1.0  # wait for the rest of the output in case a process outside the tree holds the pipe open
)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended; `code` is negative when a signal ended it."""

    code: int
    stdout: str
    stderr: str
    dropped: int  # bytes omitted from the middle of stdout and stderr together


async def run_command(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    on_output: Callable[[str, str], None] | None = None,
    keep: int = DEFAULT_KEEP_BYTES,
    grace: float = 5.0,
    on_start: Callable[[int], None] | None = None,
) -> Exit:
    """Run `argv` in a new session, and end its whole tree when it exits or the task is cancelled.

    An OSError means that the command could not be started; an exit code, that it ran. A cancelled call
    sends TERM, then KILL after `grace` seconds, and returns after the last descendant is gone. `env` is
    the complete environment of the child. The call returns the first and the last `keep` bytes of each
    stream. An exception of a callback ends the tree and is raised. On Linux this applies to every
    descendant; elsewhere only to those in the process group of the command.
    """
    environment = child_env({}) if env is None else env
    tree = ProcessTree(_encode_order(argv, cwd, environment, grace), stdin, keep, on_output, on_start)
    try:
        await _wait_until_gone(tree)
        await asyncio.wait([tree.stdout.closed, tree.stderr.closed], timeout=DRAIN_TIMEOUT_S)
    finally:
        tree.close()
    if tree.error is not None:
        raise tree.error
    stdout, stderr = await tree.stdout.captured.read_text(), await tree.stderr.captured.read_text()
    if not tree.has_started:
        raise _start_error(tree, argv, cwd, stderr)
    # A killed shim cannot report the exit code: the kernel killed the command together with the shim.
    code = -9 if tree.exit_code is None else tree.exit_code
    return Exit(code, stdout, stderr, tree.stdout.captured.dropped + tree.stderr.captured.dropped)


async def _wait_until_gone(tree: ProcessTree) -> None:
    try:
        await asyncio.wait([tree.exited])
    except asyncio.CancelledError:
        tree.terminate()
        while not tree.exited.done():
            try:
                await asyncio.wait([tree.exited])
            except asyncio.CancelledError:
                pass  # cancelled again; the call must not return before the processes are gone
        raise


def _encode_order(
    argv: Sequence[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str], grace: float
) -> bytes:
    if not argv:
        raise OSError(errno.EINVAL, "The command is empty; it needs at least a program")
    if any(not name or "=" in name for name in env):
        raise OSError(errno.EINVAL, "The name of an environment variable is empty or contains an equals sign")
    order = (
        [_encode_argument(word) for word in argv],
        [(_encode_argument(name), _encode_argument(value)) for name, value in env.items()],
        None if cwd is None else _encode_argument(cwd),
        float(grace),
        os.getpid(),
    )
    data = marshal.dumps(order)
    return len(data).to_bytes(8, "big") + data


def _encode_argument(text: str | os.PathLike[str]) -> bytes:
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, f"A command argument cannot be encoded: {error}") from error
    if b"\0" in data:
        raise OSError(errno.EINVAL, "A command argument contains a NUL character", os.fsdecode(data))
    return data


def _start_error(
    tree: ProcessTree, argv: Sequence[str], cwd: str | os.PathLike[str] | None, stderr: str
) -> OSError:
    if tree.refusal is None:
        return OSError(
            errno.ECHILD, f"The supervisor of the command did not start: {stderr[-2000:]}", argv[0]
        )
    number, culprit = tree.refusal
    return OSError(
        number, os.strerror(number), os.fspath(cwd) if cwd is not None and culprit == "directory" else argv[0]
    )
