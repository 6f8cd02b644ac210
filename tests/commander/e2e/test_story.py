"""A complete session driven only by the screen content: full screen and plain mode."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from commander.e2e.plain_terminal import Terminal
from commander.e2e.tmux import Tmux, needs_tmux
from commander.served import effects, end_server, project

PLAIN = [sys.executable, "-W", "error", "-m", "nerve", "commander", "--plain"]


class Screen(Protocol):
    """The user actions, independent of the screen mode."""

    def enter(self, text: str) -> None: ...
    def until(self, *texts: str) -> str: ...
    def left(self) -> str:
        """Return the terminal content after the Commander exited successfully."""


class Full(Tmux):
    """`nerve` in a tmux terminal."""

    def __enter__(self) -> Full:
        super().__enter__()
        self.nerve()
        return self

    def left(self) -> str:
        return self.until("it ended with 0")


class Plain(Terminal):
    """`nerve commander --plain` in a pyte terminal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PLAIN)

    def __enter__(self) -> Plain:
        self.until("❯", "? keys")
        return self

    def left(self) -> str:
        assert self.end() == 0
        return self.shown


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    yield project(tmp_path)
    await end_server(tmp_path)


@pytest.mark.requirement("S0-05")
@pytest.mark.requirement("S1-08")
@pytest.mark.requirement("S1-10")
@pytest.mark.requirement("S1-11")
@pytest.mark.parametrize("screen", [pytest.param(Full, marks=needs_tmux), Plain])
async def test_two_runs_are_started_watched_controlled_and_found_after_reopening(
    screen: type[Full | Plain], folder: Path
) -> None:
    with screen(folder) as at:
        at.enter("/workflows")
        at.until("%slow", "%ship")
        start_two(at)
        answer_one(at)
        pause_and_resume_the_other(at)
        at.enter("%hello ::ship")
        at.until("hello shipped the parcel")
        at.enter("/quit")
        left = at.left()
        assert "Running in the background:" in left
        assert "slow running  nerve watch" in left
    with screen(folder) as at:
        at.enter("/runs")
        at.until("slow running", "ship the parcel completed", "hello shipped the parcel completed")
        at.enter("/watch slow")
        at.until("slow started" if screen is Plain else "● work")
        (folder / "go").touch()
        at.until("✓ slow")
        at.enter("/quit")
        assert "in the background" not in at.left()
    assert effects(folder) == ["built", "sent"]


def start_two(at: Screen) -> None:
    at.enter("%slow")
    at.until("● slow")
    at.enter("%ship the parcel")
    at.until("Ship it?", "1 waiting")
    at.enter("/runs")
    at.until("slow running", "ship the parcel waiting")


def answer_one(at: Screen) -> None:
    at.until("approve", "▸", "1", "yes")
    at.enter("perhaps")
    at.until("Invalid choice 'perhaps'")
    at.enter("1")
    at.until("shipped the parcel", "✓ ship")


def pause_and_resume_the_other(at: Screen) -> None:
    at.enter("/pause slow")
    at.until("pauses after the current step")
    at.enter("/runs pausing")
    at.until("slow pausing")
    at.enter("/resume slow")
    at.until(") continues.")
