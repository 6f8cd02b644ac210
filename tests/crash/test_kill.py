"""A process killed at any commit loses no acknowledged write and repeats no settled step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crash.scenes import SCENES
from crash.sites import MOMENTS

TESTS = Path(__file__).parent.parent


def kill_everywhere(*scenes: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "crash.sites", *scenes],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.requirement("S0-73")
@pytest.mark.requirement("S4-14")
@pytest.mark.parametrize("scene", SCENES)
def test_killing_the_process_at_every_commit_neither_loses_nor_repeats_work(scene: str) -> None:
    report = kill_everywhere(scene)
    assert report["wrong"] == []
    assert report["deaths"] >= 2 * len(MOMENTS)  # one acknowledges the start of the run, one an answer


def test_killing_the_process_at_every_commit_to_postgresql_neither_loses_nor_repeats_work(
    postgresql_url: str,
) -> None:
    report = kill_everywhere(postgresql_url, "line:during")
    assert report["wrong"] == []
    assert report["deaths"] >= 2


@pytest.mark.full
def test_killing_the_process_at_every_commit_to_postgresql_in_all_scenes(postgresql_url: str) -> None:
    report = kill_everywhere(postgresql_url, *SCENES)
    assert report["wrong"] == []
    assert report["deaths"] >= len(SCENES) * 2 * len(MOMENTS)


@pytest.mark.full
def test_killing_the_process_at_every_commit_five_times_over() -> None:
    report = kill_everywhere(*SCENES * 5)
    assert report["wrong"] == []
    assert report["deaths"] >= 5 * len(SCENES) * 2 * len(MOMENTS)
