"""kill -9 at every point of create, merge and clean-up: the work is finished, and nothing is lost."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nerve.workspaces.checkout import WorkspaceRequest, Workspaces
from nerve.workspaces.git import Git
from nerve.workspaces.merging import MergeMethod, merge_workspace
from nerve.workspaces.records import WorkspaceFiles
from workspaces.repositories import commit, git, make_repository, read_files, write

FIVE = "one\ntwo\nthree\nfour\nfive\n"
MERGED = {"slug.py": FIVE.replace("one", "ONE").replace("five", "FIVE"), "b.py": "b\n"}
POINTS = ((Git, "try_run"), (WorkspaceFiles, "save"), (WorkspaceFiles, "forget"))


def is_killed(
    work: Callable[[], object], point: int, *, after: bool, points: Sequence[tuple[type, str]] = POINTS
) -> bool:
    """Do some work in a process that is killed before or after its n-th change; whether it got that far."""
    if (child := os.fork()) == 0:
        count = 0

        def wrap(method: Callable[..., object]) -> Callable[..., object]:
            def wrapped(*arguments: object, **keywords: object) -> object:
                nonlocal count
                count += 1
                number = count  # others can come in between
                if number == point and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = method(*arguments, **keywords)
                if number == point:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return wrapped

        for owner, name in points:
            setattr(owner, name, wrap(getattr(owner, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def check_every_point(
    tmp_path: Path, cases: list[tuple[int, bool]], check: Callable[[Path, int, bool], bool]
) -> int:
    """Check points in turn, until one is after the end of the work; return how many were reached."""
    reached = 0
    for number, (point, after) in enumerate(cases):
        reached += check(make_repository(tmp_path / f"project-{number}"), point, after)
    return reached


def points(count: int, last: int) -> list[tuple[int, bool]]:
    """`count` points from 1 to `last`, spread evenly, before and after a change in turn."""
    return [(1 + number * last // count, number % 2 == 1) for number in range(count)]


def check_create(project: Path, point: int, after: bool) -> bool:
    write(project, {"slug.py": FIVE.replace("one", "ONE"), "new.py": "new\n"})
    workspaces, request = Workspaces(project), WorkspaceRequest("worktree", files=(".env",))
    killed = is_killed(lambda: workspaces.open("run", "/a", "", request), point, after=after)
    record = workspaces.open("run", "/a", "", request)
    assert read_files(workspaces.directory(record)) == read_files(project)
    assert git(workspaces.directory(record), "branch", "--show-current") == "nerve/run/a"
    assert git(project, "worktree", "list").count("\n") == 1
    return killed


def check_merge(method: MergeMethod) -> Callable[[Path, int, bool], bool]:
    def check(project: Path, point: int, after: bool) -> bool:
        workspaces = Workspaces(project)
        request = WorkspaceRequest("worktree", None if method == "files" else "HEAD")
        record = workspaces.open("run", "/a", "", request)
        folder = workspaces.directory(record)
        commit(folder, "B", **{"b.py": "b\n"})
        write(folder, {"slug.py": FIVE.replace("five", "FIVE")})
        commit(project, "Other", **{"slug.py": FIVE.replace("one", "ONE")})
        killed = is_killed(lambda: merge_workspace(workspaces, record, method, "m"), point, after=after)
        outcome = merge_workspace(workspaces, record, method, "m")
        assert outcome.status == "merged"
        assert read_files(project) == MERGED
        expected = {"files": "2", "squash": "3", "rebase": "4", "ff": ""}[method]
        assert git(project, "rev-list", "--count", "HEAD") == expected
        assert not workspaces.close(record).has_work
        return killed

    return check


def check_fast_forward(project: Path, point: int, after: bool) -> bool:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WorkspaceRequest("worktree", "HEAD"))
    folder = workspaces.directory(record)
    commit(folder, "B", **{"b.py": "b\n"})
    write(folder, {"slug.py": FIVE.replace("five", "FIVE")})
    killed = is_killed(lambda: merge_workspace(workspaces, record, "ff", "m"), point, after=after)
    assert merge_workspace(workspaces, record, "ff", "m").status == "merged"
    assert read_files(project) == {"slug.py": FIVE.replace("five", "FIVE"), "b.py": "b\n"}
    assert git(project, "log", "--reverse", "--format=%s").split() == ["First", "B", "m"]
    assert git(project, "status", "--porcelain") == ""
    assert not workspaces.close(record).has_work
    return killed


def check_copy(project: Path, point: int, after: bool) -> bool:
    """Kill the creation, the merge and the removal of a copy, one after the other."""
    shutil.rmtree(project / ".git")
    write(project, {".env": "secret\n"})
    workspaces, request = Workspaces(project), WorkspaceRequest("copy")
    killed = is_killed(lambda: workspaces.open("run", "/a", "", request), point, after=after)
    record = workspaces.open("run", "/a", "", request)
    folder = workspaces.directory(record)
    assert read_files(folder) == {"slug.py": FIVE, ".env": "secret\n"}
    write(folder, {"slug.py": FIVE.replace("five", "FIVE"), "b.py": "b\n"})
    write(project, {"slug.py": FIVE.replace("one", "ONE")})
    killed |= is_killed(lambda: merge_workspace(workspaces, record, "files", "m"), point, after=after)
    assert merge_workspace(workspaces, record, "files", "m").status == "merged"
    assert read_files(project) == {**MERGED, ".env": "secret\n"}
    killed |= is_killed(lambda: workspaces.close(record), point, after=after)
    assert not [each.name for each in workspaces.files.records() if workspaces.close(each).has_work]
    assert not folder.exists()
    assert list(workspaces.files.records()) == []
    assert read_files(project) == {**MERGED, ".env": "secret\n"}
    return killed


def check_conflict(project: Path, point: int, after: bool) -> bool:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WorkspaceRequest("worktree"))
    folder = workspaces.directory(record)
    write(folder, {"slug.py": FIVE.replace("one", "mine"), "b.py": "b\n"})
    write(project, {"slug.py": FIVE.replace("one", "theirs")})
    killed = is_killed(lambda: merge_workspace(workspaces, record, "files", "m"), point, after=after)
    assert merge_workspace(workspaces, record, "files", "m").status == "conflict"
    text = (folder / "slug.py").read_text()
    assert text.count("<<<<<<<") == 1
    assert "mine" in text
    assert "theirs" in text
    assert read_files(project) == {"slug.py": FIVE.replace("one", "theirs")}
    return killed


def check_close(project: Path, point: int, after: bool) -> bool:
    workspaces = Workspaces(project)
    one, two = (workspaces.open("run", name, "", WorkspaceRequest("worktree")) for name in ("/a", "/b"))
    write(workspaces.directory(one), {"a.py": "a\n"})
    write(workspaces.directory(two), {"b.py": "b\n"})
    merge_workspace(workspaces, one, "files", "m")
    both = (one, two)
    killed = is_killed(lambda: [workspaces.close(each) for each in both], point, after=after)
    left = {each.name: each for each in workspaces.files.records()}
    assert not [state for name in left if name == "a" and (state := workspaces.close(left[name])).has_work]
    assert workspaces.close(two).files == ["b.py"]
    assert read_files(workspaces.directory(two))["b.py"] == "b\n"
    assert not workspaces.directory(one).exists()
    assert read_files(project) == {"slug.py": FIVE, "a.py": "a\n"}
    assert git(project, "for-each-ref", "--format=%(refname)", "refs/heads/nerve") == "refs/heads/nerve/run/b"
    return killed


CHECKS: dict[str, tuple[Callable[[Path, int, bool], bool], int]] = {
    "create": (check_create, 35),
    "merge into files": (check_merge("files"), 36),
    "squash": (check_merge("squash"), 40),
    "rebase": (check_merge("rebase"), 66),
    "fast-forward": (check_fast_forward, 36),
    "copy": (check_copy, 34),
    "conflict": (check_conflict, 38),
    "close": (check_close, 30),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_kill_at_some_points_loses_no_work(tmp_path: Path, name: str) -> None:
    check, last = CHECKS[name]
    chosen = random.Random(name).sample(points(2 * last, last), 3)
    assert check_every_point(tmp_path, chosen, check) >= 1


@pytest.mark.full
@pytest.mark.parametrize("name", CHECKS)
def test_a_kill_at_every_point_loses_no_work(tmp_path: Path, name: str) -> None:
    check, reached = CHECKS[name][0], 0
    for case in range(1000):
        point, after = 1 + case // 2, case % 2 == 1
        if not check(make_repository(tmp_path / str(case)), point, after):
            break  # the work has ended before this point
        reached += 1
    assert reached >= 50
