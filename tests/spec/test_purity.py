"""Parsing, checking, showing and converting a definition has no side effects."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
CHILD = Path(__file__).parent / "look_at_hostile.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with prompts, and with Python files that record their import."""
    made = tmp_path / "project"
    for folder in ("workflows", "steps", "agents"):
        (made / ".nerve" / folder).mkdir(parents=True)
    (made / ".nerve/steps/plan.md").write_text("Plan $USER_MESSAGE")
    (tmp_path / "outside.md").write_text("secret")
    (made / ".nerve/steps/link.md").symlink_to(tmp_path / "outside.md")
    for place in (made, made / ".nerve", made / ".nerve/workflows"):
        (place / "evil.py").write_text("open('CANARY', 'w').write('imported')\n")
    return made


def look(
    project: Path, seed: int, count: int, *also: str, under: tuple[str, ...] = ()
) -> tuple[dict[str, Any], str]:
    command = [*under, sys.executable, "-B", str(CHILD), str(seed), str(count), str(project), *also]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), done.stderr


def verify(project: Path, seed: int, count: int) -> None:
    found, _ = look(project, seed, count)
    assert found["seen"] == []
    assert found["read"] > count // 10
    assert not list(project.parent.rglob("CANARY"))


def test_looking_at_hostile_definitions_does_nothing_else(project: Path) -> None:
    verify(project, 1, 400)


@pytest.mark.full
def test_looking_at_very_many_hostile_definitions_does_nothing_else(project: Path) -> None:
    verify(project, 2, 10_000)


def test_a_side_effect_would_be_detected(project: Path) -> None:
    found, _ = look(project, 1, 5, "misbehave")
    seen = {event.split()[0] for event in found["seen"]}
    assert seen >= {"exec", "open", "os.system", "import", "socket.connect"}
    assert (project / "CANARY").exists()


TRACED = re.compile(r"(?:\[pid +\d+\] )?(execve|connect|open|creat|fork|vfork|rename|unlink)\w*\(")
WRITES = re.compile("O_(?:WRONLY|RDWR|CREAT)")


@pytest.mark.full
@pytest.mark.skipif(not which("strace"), reason="there is no strace here")
def test_the_kernel_reports_no_side_effects_either(project: Path) -> None:
    calls = "execve,connect,openat,open,creat,fork,vfork,rename,renameat2,unlink,unlinkat"
    _, told = look(project, 3, 1_000, under=("strace", "-f", "-qq", "-e", f"trace={calls}"))
    before, _, after = told.partition("watching\n")
    assert "execve" in before
    assert [line for line in after.splitlines() if does_something(line)] == []


def does_something(line: str) -> bool:
    found = TRACED.match(line)
    return bool(found) and (not found[1].startswith("open") or bool(WRITES.search(line)))
