"""The plain mode by `nerve commander --plain`, with the server of a project that it starts itself."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from commander.e2e.plain_terminal import Terminal
from commander.served import effects, end_server, project

NERVE = [sys.executable, "-W", "error", "-m", "nerve", "commander", "--plain"]


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    yield project(tmp_path)
    await end_server(tmp_path)


@pytest.mark.requirement("S0-05")
@pytest.mark.requirement("S1-10")
@pytest.mark.requirement("S1-11")
async def test_two_runs_are_started_steered_left_and_found_again(folder: Path) -> None:
    with Terminal(folder, NERVE) as terminal:
        terminal.until("workflows: /workflows", "nothing runs")
        terminal.enter("%ship the first")
        terminal.until("ship started", "1 waiting:")
        terminal.enter("%ship the second")
        terminal.until("2 waiting:")
        terminal.enter("/pause")
        terminal.until("paused")
        terminal.enter("/answer 1 yes")
        terminal.until("shipped the first", "1 waiting:")
        terminal.enter("%hello ::last")
        terminal.until("hello shipped the first")
        terminal.press("ctrl-d")
        assert terminal.end() == 0
        assert "nerve watch" in terminal.shown
    with Terminal(folder, NERVE) as terminal:
        terminal.until("1 run not ended: /runs", "nothing runs")
        terminal.enter("/runs")
        terminal.until("ship completed", "ship paused")
        terminal.enter("/watch " + next(word for word in paused(terminal.shown) if "-" in word))
        terminal.until("[workflow] ship started", "ship ⏸ paused")
        terminal.enter("/resume")
        terminal.until("goes on")
        terminal.enter("/approve")
        terminal.until("shipped the second")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert sorted(effects(folder)) == ["built", "built", "sent", "sent"]


def paused(shown: str) -> list[str]:
    return next(line for line in shown.splitlines() if "ship paused" in line).split()
