"""kill -9 in runs with workspaces: the next process finishes them, and nothing happens twice."""

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.errors import StoreInUse
from nerve.store.sqlite import SqliteStore
from nerve.workspaces.records import WorkspaceFiles
from workspaces.repositories import git, make_repository, read_files
from workspaces.test_kills import POINTS, is_killed

FIVE = "one\ntwo\nthree\nfour\nfive\n"
BOTH = FIVE.replace("one", "ONE").replace("five", "FIVE")
RUN_POINTS = (*POINTS, (SqliteStore, "append"))


def replace(old: str, new: str) -> str:
    """A command that can be killed at any moment: after `sed -i`, a file would stay."""
    return f"sed s/{old}/{new}/ slug.py > ../{new}.new && mv ../{new}.new slug.py"


def edit(id: str, command: str, **workspace: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, "workspace": {"kind": "worktree", **workspace}}


def parallel(*branches: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "sequence", "steps": [{"kind": "parallel", "id": "both", "branches": list(branches)}]}


RESOLVER = {"kind": "bash", "command": "printf 'solved\\n' > slug.py"}
SCENES: dict[str, tuple[dict[str, Any], dict[str, str], int]] = {
    "commits": (
        parallel(
            edit("a", replace("one", "ONE"), merge="squash"),
            edit("b", replace("five", "FIVE"), merge="squash"),
        ),
        {"slug.py": BOTH},
        3,
    ),
    "files": (
        parallel(edit("a", replace("one", "ONE")), edit("b", replace("five", "FIVE"))),
        {"slug.py": BOTH},
        1,
    ),
    "conflict": (
        parallel(
            edit("a", replace("one", "1"), merge="squash", on_conflict=RESOLVER),
            edit("b", replace("one", "ONE"), merge="squash", on_conflict=RESOLVER),
        ),
        {"slug.py": "solved\n"},
        3,
    ),
}
"""The body of each scene, the files after it, and the number of commits."""


def run_scene(project: Path, name: str) -> None:
    """Start the run of a scene, or continue it, and wait for its end."""

    async def run() -> None:
        async with Session(store=project / ".nerve/nerve.db", project=project) as session:
            session.load(json.dumps({"name": "flow", "body": SCENES[name][0]}), "json")
            await session.recover()
            started = await session.start("flow", key="scene")
            await asyncio.wait_for(started.wait(), 120)

    deadline = time.monotonic() + 20
    while True:
        try:
            return asyncio.run(run())
        except StoreInUse:
            # A command that the killed process was just starting has its files for a moment.
            assert time.monotonic() < deadline
            time.sleep(0.05)


def check_scene(project: Path, name: str, point: int, *, after: bool) -> bool:
    """Kill a run at a point, and let the next process finish it; whether it got that far."""
    _, files, commits = SCENES[name]
    (project / ".nerve").mkdir(parents=True)
    (project / ".gitignore").write_text(".nerve/\n")
    make_repository(project, **{"slug.py": FIVE})
    killed = is_killed(lambda: run_scene(project, name), point, after=after, points=RUN_POINTS)
    run_scene(project, name)
    assert read_files(project) == {**files, ".gitignore": ".nerve/\n"}
    assert git(project, "rev-list", "--count", "HEAD") == str(commits)
    assert git(project, "status", "--porcelain") == ("" if commits > 1 else "M slug.py")
    assert git(project, "worktree", "list").count("\n") == 0
    assert git(project, "for-each-ref", "refs/heads/nerve") == ""
    assert [record.name for record in WorkspaceFiles(project).records()] == []
    return killed


@pytest.mark.parametrize("name", SCENES)
def test_a_run_that_is_killed_is_finished_once(tmp_path: Path, name: str) -> None:
    chosen = random.Random(name).sample(range(2, 80), 2)
    reached = [check_scene(tmp_path / str(point), name, point, after=point % 2 == 0) for point in chosen]
    assert any(reached)


@pytest.mark.full
@pytest.mark.parametrize("name", SCENES)
def test_a_run_that_is_killed_at_every_point_is_finished_once(tmp_path: Path, name: str) -> None:
    reached = 0
    for point in range(1, 1000):
        if not check_scene(tmp_path / str(point), name, point, after=point % 2 == 0):
            break
        reached += 1
    assert reached >= 50
