"""Engines and agents killed at random moments: no orphan, no lost conversation, no double charge."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

from agents.faults.judge import problems
from agents.faults.world import APIS, World, watched
from nerve.agents.claude.provider import find_program
from nerve.agents.codex import executable
from nerve.agents.provider import Unavailable

KILLS = 200
"""Kills in the full test, over all installed agents."""
TURN = {"claude": 2.5, "codex": 1.2, "acp": 2.0, "command": 0.8}
"""Approximate seconds of a turn: a kill hits any moment of one."""


def missing(kind: str) -> str:
    """Return why an agent cannot be tested here."""
    if kind == "claude" and find_program() is None:
        return "Claude Code is not installed: pip install '.[claude]' in the clone of Nerve"
    if kind == "acp" and importlib.util.find_spec("acp") is None:
        return "agent-client-protocol is not installed: pip install '.[acp]' in the clone of Nerve"
    if kind == "codex":
        try:
            executable.find_executable(None)
        except Unavailable as error:
            return str(error)
    return ""


THERE = [kind for kind in APIS if not missing(kind)]
AGENTS = [
    pytest.param(k, marks=pytest.mark.skipif(bool(missing(k)), reason=missing(k) or "there")) for k in APIS
]


def killed(folder: Path, kind: str, times: int, seed: int) -> World:
    """Return the world after that many kills."""
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    with watched(APIS[kind]) as stub:
        world = World(folder, kind, random.Random(seed), stub)
        try:
            world.start()
            for _ in range(times):
                world.kill(most=TURN[kind])
            world.finish(within=120)
        finally:
            world.close()
        agents = world.kills["process"] + world.kills["tree"]
        world.wrong += problems(folder, kind, stub.requests, agents)
    return world


@pytest.mark.parametrize("kind", AGENTS)
def test_killed_engines_leave_no_process_and_runs_resume(kind: str, tmp_path: Path) -> None:
    world = killed(tmp_path, kind, 3, seed=7)
    assert world.wrong == []
    assert world.kills.total() == 3


@pytest.mark.full
@pytest.mark.parametrize("kind", AGENTS)
def test_two_hundred_kills_leave_no_process_and_all_runs_resume(kind: str, tmp_path: Path) -> None:
    times = -(-KILLS // len(THERE))
    seed = random.randrange(2**32)
    world = killed(tmp_path, kind, times, seed)
    reported = {
        **world.kills,
        "at work": world.at_work,
        "asked": len(world.stub.requests),
        "slowest": world.slowest,
    }
    reported |= {"kind": kind, "seed": seed}
    sys.stdout.write(json.dumps(reported))
    assert world.wrong == []
    assert world.kills.total() == times
    assert world.at_work >= times // 10
