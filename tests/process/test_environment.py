"""A child gets only the given environment, not that of the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nerve.process import child_env, run_command
from process.seen import TAG, eventually, read, stat

if TYPE_CHECKING:
    import pytest

SECRET = "canary-5f1c"


def test_the_allow_list_lets_through_what_programs_need(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "HOME", "LC_TIME", "TZ", "NERVE_TOKEN", "PWD", "AWS_SECRET_ACCESS_KEY", "PATHS"):
        monkeypatch.setenv(name, SECRET)
    found = child_env({"MINE": "1", "TZ": "UTC"})
    assert {name for name, value in found.items() if value == SECRET} == {"PATH", "HOME", "LC_TIME"}
    assert (found["MINE"], found["TZ"]) == ("1", "UTC")


async def test_neither_child_nor_supervisor_carries_a_secret_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    monkeypatch.setenv("NERVE_TOKEN", SECRET)
    pids: list[int] = []
    environment = child_env({TAG: tag})
    task = asyncio.create_task(run_command(["sleep", "600"], env=environment, on_start=pids.append))
    await eventually(lambda: pids)
    seen = dict(entry.split(b"=", 1) for entry in read(pids[0], "environ").split(b"\0") if entry)
    assert {name.decode(): value.decode() for name, value in seen.items()} == environment
    supervisor = int(stat(pids[0])[1])
    for part in ("environ", "cmdline"):
        assert SECRET.encode() not in read(supervisor, part)
        assert tag.encode() not in read(supervisor, part)
    task.cancel()
    await asyncio.wait([task])


async def test_the_default_environment_is_the_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NERVE_TOKEN", SECRET)
    shown = await run_command(["env", "-0"])
    assert dict(line.split("=", 1) for line in shown.stdout.split("\0") if line) == child_env({})


async def test_an_empty_environment_stays_empty() -> None:
    assert (await run_command(["/usr/bin/env"], env={})).stdout == ""
