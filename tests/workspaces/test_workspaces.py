"""Workspaces: created, found again, merged and removed without losing a file."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from nerve.workspaces.checkout import WorkspaceRequest, Workspaces
from nerve.workspaces.git import GitError
from nerve.workspaces.merging import MergeMethod, merge_workspace
from workspaces.repositories import commit, git, make_repository, read_files, user_state, write

WORKTREE = WorkspaceRequest("worktree")
FROM_HEAD = WorkspaceRequest("worktree", base="HEAD")
FIVE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def test_a_worktree_has_the_files_of_the_project_on_a_branch_of_its_own(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/fix", "", WORKTREE)
    folder = workspaces.directory(record)
    assert read_files(folder) == {"slug.py": FIVE}
    assert git(folder, "branch", "--show-current") == "nerve/run/fix"
    assert git(project, "status", "--porcelain") == ""
    assert workspaces.open("run", "/fix", "", WORKTREE) == workspaces.files.load("run", "fix")


def test_files_that_are_not_committed_are_in_the_worktree_and_not_committed_there(project: Path) -> None:
    write(
        project,
        {"slug.py": "changed\n", "new.py": "new\n", "ignored.txt": "x", ".gitignore": "ignored.txt\n"},
    )
    git(project, "add", "new.py")
    before = user_state(project)
    workspaces = Workspaces(project)
    folder = workspaces.directory(workspaces.open("run", "/fix", "", WORKTREE))
    assert read_files(folder) == {"slug.py": "changed\n", "new.py": "new\n", ".gitignore": "ignored.txt\n"}
    assert git(folder, "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD")
    assert user_state(project) == before


def test_a_workspace_with_a_base_has_only_its_files(project: Path) -> None:
    write(project, {"slug.py": "changed\n"})
    git(project, "branch", "other")
    for base in ("HEAD", "other", git(project, "rev-parse", "HEAD")):
        workspaces = Workspaces(project)
        record = workspaces.open(f"run-{base}", "/fix", "", WorkspaceRequest("worktree", base))
        assert read_files(workspaces.directory(record)) == {"slug.py": FIVE}


def test_the_edits_of_two_worktrees_are_both_merged_into_the_files(project: Path) -> None:
    workspaces = Workspaces(project)
    one, two = (workspaces.open("run", name, "", WORKTREE) for name in ("/a", "/b"))
    write(workspaces.directory(one), {"slug.py": FIVE.replace("one", "ONE"), "a.py": "a\n"})
    write(workspaces.directory(two), {"slug.py": FIVE.replace("five", "FIVE"), "b.py": "b\n"})
    assert merge_workspace(workspaces, one, "files", "A").status == "merged"
    outcome = merge_workspace(workspaces, two, "files", "B")
    assert (outcome.status, outcome.files) == ("merged", ["b.py", "slug.py"])
    expected = FIVE.replace("one", "ONE").replace("five", "FIVE")
    assert read_files(project) == {"slug.py": expected, "a.py": "a\n", "b.py": "b\n"}
    assert git(project, "rev-list", "--count", "HEAD") == "1"
    assert not workspaces.close(one).has_work
    assert not workspaces.close(two).has_work
    assert git(project, "for-each-ref", "refs/heads/nerve") == ""
    assert git(project, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize("method", ["squash", "rebase"])
def test_commits_of_two_worktrees_follow_each_other_on_the_branch(project: Path, method: MergeMethod) -> None:
    workspaces = Workspaces(project)
    one, two = (workspaces.open("run", name, "", FROM_HEAD) for name in ("/a", "/b"))
    commit(workspaces.directory(one), "A1", **{"slug.py": FIVE.replace("one", "ONE")})
    commit(workspaces.directory(one), "A2", **{"a.py": "a\n"})
    commit(workspaces.directory(two), "B1", **{"slug.py": FIVE.replace("five", "FIVE")})
    write(workspaces.directory(two), {"b.py": "b\n"})
    assert merge_workspace(workspaces, one, method, "A").status == "merged"
    assert merge_workspace(workspaces, two, method, "B").status == "merged"
    expected = FIVE.replace("one", "ONE").replace("five", "FIVE")
    assert read_files(project) == {"slug.py": expected, "a.py": "a\n", "b.py": "b\n"}
    messages = ["First", "A", "B"] if method == "squash" else ["First", "A1", "A2", "B1", "B"]
    assert git(project, "log", "--reverse", "--format=%s").split("\n") == messages
    assert git(project, "status", "--porcelain") == ""


def test_a_fast_forward_keeps_the_commits_and_is_refused_when_the_branch_has_moved(project: Path) -> None:
    workspaces = Workspaces(project)
    one, two = (workspaces.open("run", name, "", FROM_HEAD) for name in ("/a", "/b"))
    tip = commit(workspaces.directory(one), "A1", **{"a.py": "a\n"})
    commit(workspaces.directory(two), "B1", **{"b.py": "b\n"})
    assert merge_workspace(workspaces, one, "ff", "A").commit == tip == git(project, "rev-parse", "HEAD")
    outcome = merge_workspace(workspaces, two, "ff", "B")
    assert (outcome.status, outcome.reason) == (
        "refused",
        "The branch 'main' has moved on, so it cannot be fast-forwarded. Use 'squash' or 'rebase'.",
    )
    assert workspaces.close(two).has_work
    assert merge_workspace(workspaces, two, "rebase", "B").status == "merged"


@pytest.mark.parametrize("method", ["files", "squash", "rebase"])
def test_a_conflict_leaves_the_target_alone_and_is_resolved_in_the_workspace(
    project: Path, method: MergeMethod
) -> None:
    workspaces = Workspaces(project)
    request = WORKTREE if method == "files" else FROM_HEAD
    one, two = (workspaces.open("run", name, "", request) for name in ("/a", "/b"))
    write(workspaces.directory(one), {"slug.py": "mine\n"})
    commit(workspaces.directory(two), "B1", **{"slug.py": "theirs\n", "b.py": "b\n"})
    merge_workspace(workspaces, one, method, "A")
    before = read_files(project)
    outcome = merge_workspace(workspaces, two, method, "B")
    assert (outcome.status, outcome.files) == ("conflict", ["slug.py"])
    assert read_files(project) == before == {"slug.py": "mine\n"}
    conflict = (workspaces.directory(two) / "slug.py").read_text()
    assert conflict == "<<<<<<< nerve/target\nmine\n=======\ntheirs\n>>>>>>> nerve/workspace\n"
    assert {"+<<<<<<< nerve/target", "+theirs", "+>>>>>>> nerve/workspace"} <= set(outcome.diff.splitlines())
    assert git(project, "for-each-ref", "refs/nerve/target", "refs/nerve/workspace") == ""
    again = merge_workspace(workspaces, two, method, "B")
    assert (again.status, again.reason) == ("conflict", "These files have conflict markers.")
    write(workspaces.directory(two), {"slug.py": "both\n"})
    assert merge_workspace(workspaces, two, method, "B").status == "merged"
    assert read_files(project) == {"slug.py": "both\n", "b.py": "b\n"}
    assert not workspaces.close(two).has_work


def test_changes_of_the_user_stay_when_a_merge_would_overwrite_them(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", FROM_HEAD)
    write(workspaces.directory(record), {"slug.py": "new\n", "b.py": "b\n"})
    write(project, {"slug.py": "of the user\n", "b.py": "of the user\n"})
    outcome = merge_workspace(workspaces, record, "squash", "A")
    assert outcome.status == "refused"
    assert "git cannot update the target" in outcome.reason
    assert read_files(project) == {"slug.py": "of the user\n", "b.py": "of the user\n"}
    assert workspaces.state(record).files == ["b.py", "slug.py"]
    write(project, {"slug.py": FIVE})
    (project / "b.py").unlink()
    assert merge_workspace(workspaces, record, "squash", "A").status == "merged"


def test_only_the_files_that_were_approved_are_merged(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    write(workspaces.directory(record), {"a.py": "a\n"})
    approved = workspaces.record_files(record, "Gate").tree
    write(workspaces.directory(record), {"a.py": "another\n"})
    outcome = merge_workspace(workspaces, record, "files", "A", [approved])
    assert (outcome.status, outcome.reason) == ("changed", "Its files have changed.")
    assert "a.py" not in read_files(project)
    write(workspaces.directory(record), {"a.py": "a\n"})
    assert merge_workspace(workspaces, record, "files", "A", [approved]).status == "merged"


def test_a_workspace_without_changes_is_removed_and_one_with_work_is_kept(project: Path) -> None:
    workspaces = Workspaces(project)
    one, two = (workspaces.open("run", name, "", WORKTREE) for name in ("/a", "/b"))
    write(workspaces.directory(two), {"b.py": "b\n"})
    assert not workspaces.close(one).has_work
    assert workspaces.close(two).files == ["b.py"]
    assert [record.name for record in workspaces.files.records()] == ["b"]
    assert workspaces.close(two, discard=True).files == ["b.py"]
    assert list(workspaces.files.records()) == []
    assert git(project, "show", "refs/nerve-files/run/b:b.py") == "b"
    workspaces.delete_snapshots("run")
    assert git(project, "for-each-ref", "refs/nerve-files") == ""


def test_commits_that_were_pushed_stay_on_their_branch(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    git(project, "remote", "add", "origin", str(tmp_path / "origin.git"))
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WorkspaceRequest("worktree", "HEAD", branch="fix-1"))
    tip = commit(workspaces.directory(record), "Fix", **{"a.py": "a\n"})
    assert workspaces.state(record).commits == 1
    git(workspaces.directory(record), "push", "--quiet", "origin", "fix-1")
    assert not workspaces.close(record).has_work
    assert git(project, "rev-parse", "fix-1") == tip


def test_a_branch_and_the_snapshots_of_its_files_have_different_names(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    write(workspaces.directory(record), {"b.py": "b\n"})
    snapshot = workspaces.record_files(record, "After /a")
    assert git(project, "rev-parse", record.ref) == snapshot.commit
    assert git(project, "rev-parse", record.branch) == record.base_head


def test_a_folder_that_is_gone_is_created_again_with_its_last_files(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    folder = workspaces.directory(record)
    head = commit(folder, "A1", **{"a.py": "a\n"})
    write(folder, {"slug.py": "changed\n"})
    workspaces.record_files(record, "After a")
    git(project, "worktree", "remove", "--force", str(folder))
    git(project, "update-ref", "-d", "refs/heads/nerve/run/a")
    workspaces.restore("run", record.to_output(), None, WORKTREE)
    assert read_files(folder) == {"slug.py": "changed\n", "a.py": "a\n"}
    assert git(folder, "rev-parse", "HEAD") == head
    assert git(folder, "status", "--porcelain") == "M slug.py"


def test_a_fork_gets_the_files_of_a_snapshot_in_a_worktree_of_its_own(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    folder = workspaces.directory(record)
    write(folder, {"a.py": "first\n"})
    first = workspaces.record_files(record, "After a")
    write(folder, {"a.py": "second\n"})
    workspaces.record_files(record, "After b")
    fork = workspaces.restore("fork", record.to_output(), first.commit, WORKTREE)
    assert read_files(workspaces.directory(fork)) == {"slug.py": FIVE, "a.py": "first\n"}
    assert (folder / "a.py").read_text() == "second\n"
    assert git(workspaces.directory(fork), "branch", "--show-current") == "nerve/fork/a"


def test_workspaces_are_created_at_the_same_time(project: Path) -> None:
    workspaces = Workspaces(project)
    with ThreadPoolExecutor(8) as pool:
        records = list(pool.map(lambda n: workspaces.open("run", f"/{n}", "", WORKTREE), range(12)))
    assert len({workspaces.directory(record) for record in records}) == 12
    for number, record in enumerate(records):
        write(workspaces.directory(record), {f"{number}.py": f"{number}\n"})
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda record: merge_workspace(workspaces, record, "files", "m"), records))
    assert {outcome.status for outcome in outcomes} == {"merged"}
    assert read_files(project) == {"slug.py": FIVE, **{f"{n}.py": f"{n}\n" for n in range(12)}}


def test_a_record_is_written_while_the_last_other_workspace_of_the_run_is_removed(project: Path) -> None:
    workspaces = Workspaces(project)
    other = workspaces.open("run", "/b", "", WORKTREE)
    workspaces.files.prepare("run")
    workspaces.close(other)
    record = workspaces.files.save(replace(other, name="a"))
    assert workspaces.files.load("run", "a") == record


def test_a_repository_without_commits_is_merged_into_its_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, {"a.py": "a\n"})
    workspaces = Workspaces(tmp_path)
    record = workspaces.open("run", "/a", "", WORKTREE)
    write(workspaces.directory(record), {"a.py": "changed\n", "b.py": "b\n"})
    refused = merge_workspace(workspaces, record, "squash", "A")
    branch = git(tmp_path, "symbolic-ref", "--short", "HEAD")
    reason = f"'{branch}' has no commits. Commit the files there, or merge with 'files'."
    assert (refused.status, refused.reason) == ("refused", reason)
    assert merge_workspace(workspaces, record, "files", "A").status == "merged"
    assert read_files(tmp_path) == {"a.py": "changed\n", "b.py": "b\n"}
    assert not workspaces.close(record).has_work


def test_a_copy_is_merged_into_a_folder_that_is_not_a_repository(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "a\n", "sub/b.py": "b\n", ".env": "KEY=1\n", ".gitignore": ".env\n"})
    workspaces = Workspaces(tmp_path)
    one, two = (workspaces.open("run", name, "", WorkspaceRequest("copy")) for name in ("/a", "/b"))
    assert read_files(workspaces.directory(one)) == read_files(tmp_path)
    write(workspaces.directory(one), {"a.py": "changed\n"})
    (workspaces.directory(two) / "sub/b.py").unlink()
    assert {merge_workspace(workspaces, each, "files", "m").status for each in (one, two)} == {"merged"}
    assert read_files(tmp_path) == {"a.py": "changed\n", ".env": "KEY=1\n", ".gitignore": ".env\n"}
    assert not workspaces.close(one).has_work
    assert not (tmp_path / ".git").exists()


def test_the_branch_of_the_target_gets_the_work_also_when_another_one_is_checked_out(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", FROM_HEAD)
    write(workspaces.directory(record), {"a.py": "a\n"})
    git(project, "checkout", "--quiet", "-b", "other")
    assert merge_workspace(workspaces, record, "squash", "A").status == "merged"
    assert git(project, "show", "main:a.py") == "a"
    assert read_files(project) == {"slug.py": FIVE}


def test_a_merge_onto_a_deleted_branch_is_refused(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", FROM_HEAD)
    write(workspaces.directory(record), {"a.py": "a\n"})
    git(project, "checkout", "--quiet", "-b", "other")
    git(project, "branch", "--quiet", "-D", "main")
    outcome = merge_workspace(workspaces, record, "squash", "A")
    assert outcome.status == "refused"
    problem, _, command = outcome.reason.partition("Create it again (")
    assert problem == "The branch 'main', from which the work started, is gone. "
    assert workspaces.close(record).has_work
    git(project, *command.removesuffix(").").split()[1:])
    assert merge_workspace(workspaces, record, "squash", "A").status == "merged"
    assert git(project, "show", "main:a.py") == "a"


def test_the_work_of_a_workspace_whose_folder_and_branch_are_gone_is_shown(project: Path) -> None:
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    write(workspaces.directory(record), {"a.py": "a\n"})
    workspaces.record_files(record, "Last")
    shutil.rmtree(workspaces.directory(record))
    git(project, "worktree", "prune")
    git(project, "branch", "--quiet", "-D", record.branch)
    assert "+++ b/a.py" in workspaces.diff(record)
    assert workspaces.close(record).files == ["a.py"]


def test_untracked_files_are_copied_on_request(project: Path) -> None:
    write(project, {".gitignore": ".env\nkeys/\n", ".env": "KEY=1\n", "keys/a.pem": "pem\n"})
    workspaces = Workspaces(project)
    request = WorkspaceRequest("worktree", files=(".env", "keys", "missing*"))
    record = workspaces.open("run", "/a", "", request)
    assert read_files(workspaces.directory(record)) == read_files(project)
    assert workspaces.close(record).files == []
    with pytest.raises(GitError, match="leads out of the project"):
        workspaces.open("run", "/b", "", WorkspaceRequest("worktree", files=("../x",)))


def test_a_project_below_the_top_of_its_repository_keeps_its_place(project: Path) -> None:
    write(project, {"services/api/app.py": "app\n"})
    commit(project, "Api")
    workspaces = Workspaces(project / "services/api")
    record = workspaces.open("run", "/a", "", WORKTREE)
    assert read_files(workspaces.directory(record)) == {"app.py": "app\n"}
    write(workspaces.directory(record), {"app.py": "changed\n"})
    write(workspaces.directory(record).parent.parent, {"slug.py": "changed\n"})
    assert merge_workspace(workspaces, record, "files", "m").files == ["services/api/app.py", "slug.py"]
    assert read_files(project)["slug.py"] == "changed\n"


def test_a_workspace_in_a_workspace_is_merged_into_it(project: Path) -> None:
    workspaces = Workspaces(project)
    outer = workspaces.open("run", "", "", FROM_HEAD)
    write(workspaces.directory(outer), {"a.py": "a\n"})
    inner = workspaces.open("run", "/b", outer.name, WORKTREE)
    assert read_files(workspaces.directory(inner)) == {"slug.py": FIVE, "a.py": "a\n"}
    write(workspaces.directory(inner), {"b.py": "b\n"})
    assert merge_workspace(workspaces, inner, "files", "m").status == "merged"
    assert read_files(workspaces.directory(outer)) == {"slug.py": FIVE, "a.py": "a\n", "b.py": "b\n"}
    assert read_files(project) == {"slug.py": FIVE}


def test_submodules_are_checked_out_and_their_work_is_never_removed(project: Path, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library", **{"lib.py": "lib\n"})
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(library), "lib")
    commit(project, "Add a submodule")
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    folder = workspaces.directory(record)
    assert (folder / "lib/lib.py").read_text() == "lib\n"
    assert git(folder / "lib", "remote", "get-url", "origin") == str(library)
    assert not workspaces.state(record).has_work
    write(folder / "lib", {"lib.py": "changed\n"})
    assert workspaces.close(record).problem == "the submodule 'lib' has work of its own"
    git(folder / "lib", "checkout", "--quiet", ".")
    assert not workspaces.close(record).has_work


def test_hooks_of_the_repository_do_not_run(project: Path) -> None:
    for name in ("post-checkout", "pre-commit", "post-merge", "reference-transaction", "post-index-change"):
        hook = project / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {project}/../ran-{name}\n")
        hook.chmod(0o755)
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", FROM_HEAD)
    write(workspaces.directory(record), {"a.py": "a\n"})
    assert merge_workspace(workspaces, record, "squash", "A").status == "merged"
    workspaces.close(record)
    assert list(project.parent.glob("ran-*")) == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (WorkspaceRequest("worktree", base="gone"), "Unknown base 'gone'"),
        (WorkspaceRequest("worktree", branch="main"), "The branch 'main' already exists"),
        (WorkspaceRequest("worktree", branch="a b"), "git does not allow 'a b' as the name of a branch"),
        (WorkspaceRequest("copy"), "is in a git repository. Write workspace: worktree"),
    ],
)
def test_a_request_that_cannot_be_met_creates_nothing(
    project: Path, request_: WorkspaceRequest, message: str
) -> None:
    workspaces = Workspaces(project)
    with pytest.raises(GitError, match=message):
        workspaces.open("run", "/a", "", request_)
    assert list(workspaces.files.records()) == []
    assert git(project, "branch", "--format=%(refname:short)") == "main"


def test_a_folder_without_a_repository_cannot_have_a_worktree(tmp_path: Path) -> None:
    with pytest.raises(GitError, match=r"is not in a git repository\. Write workspace: copy"):
        Workspaces(tmp_path).open("run", "/a", "", WORKTREE)


def test_a_folder_of_workspaces_that_is_a_symbolic_link_is_refused(project: Path, tmp_path: Path) -> None:
    (project / ".nerve").mkdir()
    (project / ".nerve/workspaces").symlink_to(tmp_path)
    with pytest.raises(GitError, match="is a symbolic link"):
        Workspaces(project).open("run", "/a", "", WORKTREE)


def test_names_and_texts_of_files_are_kept_exactly(project: Path) -> None:
    names = {
        "ümlaut ü.txt": "ä\n",
        "a b\tc.txt": "x",
        "-dash": "no newline",
        'quo"te': "\r\n",
        "crlf.txt": "a\r\nb\r\n",
    }
    write(project, names)
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("run.sh")
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    folder = workspaces.directory(record)
    for name in [*names, "run.sh"]:
        assert (folder / name).read_bytes() == (project / name).read_bytes()
    assert os.access(folder / "run.sh", os.X_OK)
    assert os.readlink(folder / "link") == "run.sh"
    assert workspaces.diff(record) == ""


@pytest.mark.parametrize(
    ("file", "patterns"),
    [
        (".gitignore", ".nerve/\n"),
        (".gitignore", ".nerve/nerve.db\n"),
        (".nerve/.gitignore", "nerve.db*\nserver*\nlogs/\nartifacts/\nprivate/\n"),
        (".nerve/.gitignore", "*\n"),
    ],
)
def test_the_state_of_nerve_is_left_out_whether_git_ignores_it_or_not(
    project: Path, file: str, patterns: str
) -> None:
    state = {
        ".nerve/nerve.db": "db",
        ".nerve/nerve.db-wal": "wal",
        ".nerve/logs/a": "log",
        ".nerve/server": "",
    }
    write(project, {**state, file: patterns, "new.py": "new\n"})
    workspaces = Workspaces(project)
    record = workspaces.open("run", "/a", "", WORKTREE)
    folder = workspaces.directory(record)
    assert read_files(folder)["new.py"] == "new\n"
    assert [name for name in state if (folder / name).exists()] == []
    write(folder, {"new.py": "newer\n"})
    assert merge_workspace(workspaces, record, "files", "A").status == "merged"
    assert (project / "new.py").read_text() == "newer\n"
    assert (project / ".nerve/nerve.db").read_text() == "db"
