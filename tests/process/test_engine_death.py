"""When the engine dies, even by kill -9, its commands die with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nerve.process
from process.seen import HOSTILE, TAG, eventually, tagged

ENGINE = f"""
import asyncio, os, sys, time
from nerve.process import child_env, run_command

tag, script, forks = sys.argv[1:]

def say(name, text):
    if forks and os.fork() == 0:
        time.sleep(15)  # a copy of the engine that holds all its descriptors
        os._exit(0)
    print(text, flush=True)

asyncio.run(run_command(["bash", "-c", script], env=child_env({{"{TAG}": tag}}), on_output=say))
"""


@contextmanager
def engine(tag: str, forks: str = "") -> Iterator[subprocess.Popen[str]]:
    """An engine in a separate process group with a running command."""
    source = str(Path(nerve.process.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE, tag, HOSTILE, forks],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        os.killpg(process.pid, 9)  # its forks


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.full)])
async def test_a_killed_engine_leaves_no_survivor(tag: str, times: int) -> None:
    for number in range(times):
        with engine(f"{tag}-{number}") as process:
            assert len(tagged(f"{tag}-{number}")) >= 5
            process.kill()
            await eventually(lambda number=number: not tagged(f"{tag}-{number}"), within=3)


async def test_a_fork_of_the_engine_does_not_keep_its_commands_alive(tag: str) -> None:
    with engine(tag, forks="yes") as process:
        process.kill()
        await eventually(lambda: not tagged(tag), within=3)
