"""A command that cannot be started raises an OSError and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nerve.process import child_env, run_command
from process.seen import children, open_fds


async def refused(argv: list[str], **options: object) -> OSError:
    before = open_fds()
    with pytest.raises(OSError) as caught:
        await run_command(argv, **options)  # type: ignore[arg-type]
    assert open_fds() == before
    return caught.value


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(len(taken) + count + 1) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[count], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_missing_program_is_named() -> None:
    error = await refused(["no-such-program", "x"])
    assert (error.errno, error.filename) == (errno.ENOENT, "no-such-program")


async def test_a_file_that_is_not_executable_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plain\ntext"
    file.write_text("")
    error = await refused([str(file)])
    assert (error.errno, error.filename) == (errno.EACCES, str(file))


async def test_a_deleted_working_directory_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    error = await refused(["true"], cwd=gone)
    assert (error.errno, error.filename) == (errno.ENOENT, str(gone))


@pytest.mark.parametrize("size", [131_072, 8_000_000])
async def test_an_environment_that_is_too_long_is_refused(size: int) -> None:
    assert (await refused(["true"], env=child_env({"LONG": "x" * size}))).errno == errno.E2BIG


async def test_an_argument_that_is_too_long_is_refused() -> None:
    assert (await refused(["true", "x" * 131_072])).errno == errno.E2BIG


@pytest.mark.parametrize("argv", [[], ["echo", "a\0b"], ["echo", "\ud800"]])
async def test_an_argument_that_no_process_can_receive_is_rejected(argv: list[str]) -> None:
    assert (await refused(argv)).errno in (errno.EINVAL, errno.EILSEQ)


@pytest.mark.parametrize("env", [{"": "x"}, {"a=b": "x"}, {"a": "x\0"}])
async def test_an_impossible_environment_is_refused(env: dict[str, str]) -> None:
    assert (await refused(["true"], env=env)).errno == errno.EINVAL


async def test_running_out_of_descriptors_is_refused_and_leaks_nothing() -> None:
    assert (await run_command(["true"], stdin=b"x")).code == 0
    before, errors = open_fds(), set()
    for count in range(12):
        with descriptors_left(count):
            try:
                await run_command(["true"], stdin=b"x")
            except OSError as error:
                errors.add(error.errno)
        assert open_fds() == before
    assert errors == {errno.EMFILE}
    assert (await run_command(["true"])).code == 0


async def test_a_failed_start_leaves_no_process() -> None:
    before = children(os.getpid())
    await refused(["no-such-program"])
    assert children(os.getpid()) == before


async def test_a_command_that_ran_and_failed_is_an_exit() -> None:
    assert (await run_command(["bash", "-c", "no-such-program"])).code == 127


async def test_the_search_path_is_that_of_the_child(tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    assert (await run_command(["greet"], env={"PATH": str(tmp_path)})).stdout == "hello\n"
