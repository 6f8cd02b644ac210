"""Programs with line-based input and output."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from nerve.process.environment import child_env
from nerve.process.line_process import LineProcess, open_line_process
from process.seen import HOSTILE, TAG, eventually, open_fds, resident, tagged, zombies


async def test_lines_are_exchanged_while_the_program_runs() -> None:
    async with open_line_process(["cat"]) as program:
        for word in (b"one", b"two", b"x" * 300_000):
            program.send(word)
            assert await program.read_line() == word + b"\n"
        assert program.pid > 0


async def test_reading_from_an_ended_program_returns_nothing() -> None:
    async with open_line_process(["sh", "-c", "echo last; printf cut; echo why >&2; exit 3"]) as program:
        assert await program.read_line() == b"last\n"
        assert await program.read_line() == b"cut"
        assert await program.read_line() == b""
        assert await program.wait_for_stderr() == "why\n"
        program.send(b"into the void")
        assert await program.read_line() == b""


async def test_leaving_the_context_ends_every_kind_of_descendant(tag: str) -> None:
    env = child_env({TAG: tag})
    async with open_line_process(["bash", "-c", HOSTILE], env=env, grace=0.2) as program:
        assert await program.read_line() == b"ready\n"
        assert len(tagged(tag)) > 3
    assert not tagged(tag)


async def test_cancelling_while_leaving_still_waits_for_the_last_process(tag: str) -> None:
    ready = asyncio.Event()

    async def leave() -> None:
        async with open_line_process(
            ["bash", "-c", HOSTILE], env=child_env({TAG: tag}), grace=0.2
        ) as program:
            await program.read_line()
            ready.set()

    leaving = asyncio.create_task(leave())
    await ready.wait()
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert not tagged(tag)


async def test_cancelling_at_any_point_of_the_start_leaves_nothing(tag: str) -> None:
    async def start() -> None:
        async with open_line_process(["cat"], env=child_env({TAG: tag})) as program:
            await program.read_line()

    for steps in range(12):
        starting = asyncio.create_task(start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
    assert not tagged(tag)
    assert not zombies()


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/dev/null"]])
async def test_a_program_that_cannot_be_started_is_named(argv: list[str]) -> None:
    with pytest.raises(OSError) as caught:
        async with open_line_process(argv):
            pass
    assert caught.value.filename == argv[0]


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        async with open_line_process(["cat"], cwd=tmp_path / "gone"):
            pass
    assert caught.value.filename == str(tmp_path / "gone")


async def test_a_line_that_is_too_long_is_rejected() -> None:
    async with open_line_process(["sh", "-c", "yes | tr -d '\\n'"], limit=100_000) as program:
        with pytest.raises(OSError, match="exceeds the size limit"):
            await program.read_line()


async def test_a_program_with_much_output_waits_for_the_reader() -> None:
    before = resident()
    async with open_line_process(["yes"], limit=100_000) as program:
        for _ in range(100):
            assert await program.read_line() == b"y\n"
            await asyncio.sleep(0.001)
    assert resident() - before < 16 * 1024 * 1024


async def test_the_end_of_the_error_stream_is_kept() -> None:
    script = "import sys; sys.stderr.write('x' * 100_000 + 'the end'); sys.stderr.flush(); print('said')"
    async with open_line_process([sys.executable, "-c", script]) as program:
        await program.read_line()
        said = await program.wait_for_stderr()
    assert said.endswith("xthe end")
    assert len(said) < 20_000


async def test_many_programs_leave_neither_descriptors_nor_zombies() -> None:
    async def one() -> bytes:
        async with open_line_process(["cat"]) as program:
            program.send(b"hello")
            return await program.read_line()

    await one()
    base = open_fds()
    for _ in range(5):
        assert await asyncio.gather(*(one() for _ in range(8))) == [b"hello\n"] * 8
    await eventually(lambda: open_fds() <= base)
    assert not zombies()


async def test_the_program_gets_the_given_environment() -> None:
    async with open_line_process(["/usr/bin/env"], env={"ONLY": "this"}) as program:
        assert await all_lines(program) == [b"ONLY=this\n"]


async def all_lines(program: LineProcess) -> list[bytes]:
    lines = []
    while line := await program.read_line():
        lines.append(line)
    return lines
