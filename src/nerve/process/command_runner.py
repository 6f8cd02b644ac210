"""Run one command to its end and hand back what it said; nothing it started outlives the call."""

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
    1.0  # seconds for the rest of the output, should a process outside the tree hold the pipe open
)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended; `code` is negative when a signal ended it."""

    code: int
    stdout: str
    stderr: str
    dropped: int  # bytes left out of the middle of stdout and stderr together


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
    """Run `argv` in a session of its own, and end its whole tree when it exits or the task is cancelled.

    An OSError says that the command could not be started; an exit code, that it ran. A cancelled call
    ends, with TERM, `grace` seconds and KILL, only after the last descendant is gone. `env` is the whole
    environment of the child. `keep` bytes of the head and of the tail of each stream are handed back.
    An error of a callback ends the tree and is raised. On Linux all this holds for every descendant;
    elsewhere only for those that stay in the command's process group.
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
    # A shim that was killed could not say how the command ended: the kernel killed it together with the shim.
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
                pass  # cancelled twice; the promise is that the processes are gone
        raise


def _encode_order(
    argv: Sequence[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str], grace: float
) -> bytes:
    if not argv:
        raise OSError(errno.EINVAL, "a command needs at least a program, found none")
    if any(not name or "=" in name for name in env):
        raise OSError(errno.EINVAL, "the name of an environment variable is empty or holds an equals sign")
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
        raise OSError(errno.EILSEQ, f"an argument of a command cannot be encoded: {error}") from error
    if b"\0" in data:
        raise OSError(errno.EINVAL, "an argument of a command holds a NUL character", os.fsdecode(data))
    return data


def _start_error(
    tree: ProcessTree, argv: Sequence[str], cwd: str | os.PathLike[str] | None, stderr: str
) -> OSError:
    if tree.refusal is None:
        return OSError(errno.ECHILD, f"the supervisor of a command did not start: {stderr[-2000:]}", argv[0])
    number, culprit = tree.refusal
    return OSError(
        number, os.strerror(number), os.fspath(cwd) if cwd is not None and culprit == "directory" else argv[0]
    )
