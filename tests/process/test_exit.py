"""How a command runs and ends without interruption."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sys
import time

import pytest

from nerve.process import Exit, child_env, run_command
from process.seen import TAG, children, eventually, stat, tagged


async def bash(script: str, tag: str = "", stdin: bytes = b"") -> Exit:
    return await run_command(["bash", "-c", script], env=child_env({TAG: tag}), stdin=stdin)


async def test_an_exit_carries_code_and_both_streams() -> None:
    assert await bash("echo out; echo err >&2; exit 3") == Exit(3, "out\n", "err\n", 0)


async def test_a_signal_is_a_negative_code() -> None:
    assert (await bash("kill -SEGV $$")).code == -signal.SIGSEGV


async def test_stdin_is_the_given_bytes_then_the_end() -> None:
    given = bytes(range(128)) * 20_000
    assert (await run_command(["cat"], stdin=given)).stdout == given.decode()


async def test_without_stdin_a_reader_ends_at_once() -> None:
    assert (await run_command(["cat"])).stdout == ""


@pytest.mark.parametrize("script", ["true", "head -c 1 > /dev/null", "exec <&-; sleep 0.05"])
async def test_a_child_that_does_not_read_stdin_is_not_an_error(script: str) -> None:
    assert (await bash(script, stdin=b"x" * 5_000_000)).code == 0


async def test_background_children_end_with_the_command(tag: str) -> None:
    begin = time.monotonic()
    result = await bash("sleep 600 & setsid sleep 600 & (trap '' TERM; sleep 600) & echo done", tag)
    assert (result.code, result.stdout) == (0, "done\n")
    assert time.monotonic() - begin <= 30
    assert tagged(tag) == []


async def test_a_grandchild_that_holds_stdout_does_not_hang_the_call(tag: str) -> None:
    pids: list[int] = []
    script = "(trap '' TERM; exec setsid sleep 600) & echo done"
    task = asyncio.create_task(
        run_command(["bash", "-c", script], env=child_env({TAG: tag}), on_start=pids.append)
    )
    await eventually(lambda: pids and not stat(pids[0]))
    begin = time.monotonic()
    assert (await task).stdout == "done\n"
    assert time.monotonic() - begin <= 30


async def test_a_command_that_kills_its_own_group_does_not_reach_its_supervisor(tag: str) -> None:
    assert (await bash("setsid sleep 600 & kill -KILL 0", tag)).code == -signal.SIGKILL
    assert tagged(tag) == []


async def test_a_command_that_signals_its_supervisor_ends_its_whole_tree(tag: str) -> None:
    assert (await bash("setsid sleep 600 & kill -TERM $PPID; sleep 600", tag)).code == -signal.SIGTERM
    assert tagged(tag) == []


async def test_a_command_that_kills_its_supervisor_dies_with_it(tag: str) -> None:
    assert (await bash("kill -KILL $PPID; sleep 600", tag)).code == -signal.SIGKILL


async def test_adopted_orphans_are_reaped_while_the_command_runs(tag: str) -> None:
    script = "for i in 1 2 3 4 5; do (setsid true &); done; echo $PPID; read line"
    pids: list[int] = []
    task = asyncio.create_task(
        run_command(
            ["bash", "-c", f"{script} < <(sleep 600)"], env=child_env({TAG: tag}), on_start=pids.append
        )
    )
    await eventually(lambda: pids)
    supervisor = int(stat(pids[0])[1])
    await eventually(lambda: children(pids[0]) and children(supervisor) == pids)
    task.cancel()
    await asyncio.wait([task])


async def test_the_child_has_its_own_session_and_no_terminal() -> None:
    shown = await bash("echo $$; cut -d' ' -f6,7 /proc/$$/stat; (: < /dev/tty) 2>/dev/null || echo no tty")
    pid, session, answer = shown.stdout.splitlines()
    assert session.split() == [pid, "0"]
    assert answer == "no tty"


async def test_the_child_has_limits() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    expected = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    assert (await bash("ulimit -Sn; ulimit -Sc; ulimit -Hc")).stdout.split() == [str(expected), "0", "0"]


async def test_the_child_gets_no_other_descriptor_and_default_signals() -> None:
    program = "import os; print(sorted(os.listdir('/proc/self/fd'))[:4])"
    shown = await run_command([sys.executable, "-I", "-S", "-c", program])
    assert shown.stdout == "['0', '1', '2', '3']\n"  # 3 is the listing itself
    ignored = await run_command(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"])
    masks = [int(line.split()[1], 16) for line in ignored.stdout.splitlines()]
    own = 0b11 << 31  # signals 32 and 33 belong to the C library, and make hands them down ignored
    assert [mask & ~own for mask in masks] == [0, 0]


async def test_the_working_directory_is_the_given_one(tmp_path: os.PathLike[str]) -> None:
    assert (await run_command(["pwd"], cwd=tmp_path)).stdout == f"{os.fspath(tmp_path)}\n"


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.full)])
async def test_arguments_reach_the_child_as_data(count: int) -> None:
    pieces = [
        "-x",
        "--dangerously-skip-permissions",
        "$(id)",
        "\n",
        "`id`",
        "ü🙂",
        "'",
        '"',
        "\\",
        "*",
        " ",
        ";",
    ]
    chance = random.Random(count)
    values = ["".join(chance.choices(pieces, k=chance.randrange(6))) for _ in range(count)]
    shown = await run_command(["printf", r"%s\0", *values])
    assert shown.stdout.split("\0") == [*values, ""]


async def test_on_start_receives_the_pid_of_the_child() -> None:
    pids: list[int] = []
    shown = await run_command(["bash", "-c", "echo $$"], on_start=pids.append)
    assert pids == [int(shown.stdout)]


async def test_an_error_of_on_start_ends_the_tree_and_is_raised(tag: str) -> None:
    def refuse(pid: int) -> None:
        raise LookupError(pid)

    with pytest.raises(LookupError):
        await run_command(["sleep", "600"], env=child_env({TAG: tag}), on_start=refuse)
    assert tagged(tag) == []
