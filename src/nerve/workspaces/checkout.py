"""Create a workspace, find it again, and remove it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.workspaces.git import Git, GitError, repository_lock
from nerve.workspaces.records import SNAPSHOT_REFS, WorkspaceFiles, WorkspaceRecord, abs_hash, workspace_name
from nerve.workspaces.repository import (
    FileTree,
    Repository,
    Snapshot,
    changed_files,
    find_repository,
    format_diff,
    head_of_snapshot,
    remove_folder,
    take_snapshot,
)

BRANCH_PREFIX = "nerve"
logger = logging.getLogger("nerve")


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """What a step or a run asks for."""

    kind: str
    base: str | None = None
    """A branch, tag or commit; None for the files as they are."""
    branch: str | None = None
    files: tuple[str, ...] = ()
    """Untracked files to copy, as patterns."""
    artifacts: tuple[str, ...] = ()
    """The folders with the artifacts of the runs that work in it, relative to the project."""


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """How a workspace differs from what it was created from."""

    files: list[str]
    """The files that are changed and not merged."""
    commits: int
    """The commits on its branch that are not merged."""
    problem: str = ""
    """Why it must stay although it has no unmerged work."""

    @property
    def has_work(self) -> bool:
        return bool(self.files or self.commits or self.problem)


@dataclass(frozen=True, slots=True)
class FileBase:
    """The files that a workspace is created from."""

    head: str
    """The commit that was checked out; one of the files if there was none."""
    tree: str
    """All files that are not ignored, whether committed or not."""
    branch: str | None = None
    """The branch that was checked out."""


class Workspaces:
    """The workspaces of one project. The methods block; changes to one repository exclude each other."""

    def __init__(self, project: Path) -> None:
        self.project = project.absolute()
        self.files = WorkspaceFiles(self.project)

    # -- places --------------------------------------------------------------------------------

    def target_folder(self, run: str, target: str) -> Path:
        """Return the folder that a workspace is created from and merged into: the project, or a workspace."""
        if not target:
            return self.project
        owner, name = split_target(run, target)
        outer = self.files.load(owner, name)
        return self.files.directory(owner, name) if outer is None else self.directory(outer)

    def find(self, run: str, target: str) -> WorkspaceRecord | None:
        """Return the record of a target of a run, or None."""
        return self.files.load(*split_target(run, target))

    def find_repository(self, kind: str, run: str, target: str) -> Repository:
        """Return the repository of a target; GitError if the kind of workspace does not fit it."""
        folder = self.target_folder(run, target)
        found = find_repository(folder)
        if kind == "copy":
            if found is not None and found.common_dir != self.files.copies:
                raise GitError(f"{folder} is in a git repository. Write workspace: worktree")
            return found or Repository(folder, self.files.copies, "")
        if found is None:
            raise GitError(
                f"{folder} is not in a git repository. Write workspace: copy, or create one with 'git init'"
            )
        return found

    def directory(self, record: WorkspaceRecord) -> Path:
        """Return the folder of the workspace that takes the place of the project."""
        return self.files.directory(record.run, record.name) / record.prefix

    def repository_of(self, record: WorkspaceRecord) -> Repository:
        return self.find_repository(record.kind, record.run, record.target)

    def own_tree(self, record: WorkspaceRecord) -> FileTree:
        """Return the files of a workspace."""
        folder = self.files.directory(record.run, record.name)
        index = self.files.index(record.run, record.name)
        return FileTree(Git(folder), index, record.kind == "copy", record.prefix)

    def target_tree(self, record: WorkspaceRecord) -> FileTree:
        """Return the files that the work of a workspace is merged into."""
        return self._tree_of_target(record.kind, record.run, record.target)

    def _tree_of_target(self, kind: str, run: str, target: str) -> FileTree:
        repository = self.find_repository(kind, run, target)
        is_plain = kind == "copy" and find_repository(repository.top) is None
        git = Git(repository.top, git_dir=self.files.copies if is_plain else None)
        index = self.files.folder / f"target-{abs_hash(str(repository.top))}.index"
        return FileTree(git, index, kind == "copy", repository.prefix)

    # -- creation ------------------------------------------------------------------------------

    def record_base(self, run: str, path: str, target: str, kind: str) -> FileBase:
        """Record the files of a target, from which the workspaces of several steps can be created."""
        with repository_lock(self._prepare_repository(run, target, kind).common_dir):
            return self._find_base(run, path, target, kind)

    def open(
        self, run: str, path: str, target: str, request: WorkspaceRequest, base: FileBase | None = None
    ) -> WorkspaceRecord:
        """Create the workspace of a step, or return the one that an interrupted attempt has created.

        Without a base, it starts from the files as they are now.
        """
        name = workspace_name(path)
        with repository_lock(self._prepare_repository(run, target, request.kind).common_dir):
            record = self.files.load(run, name)
            if record is None:
                is_committed = request.base is not None
                base = base or self._find_base(run, path, target, request.kind, is_committed=is_committed)
                record = self.files.save(self._plan(run, path, target, request, base))
            if not self._exists(record):
                record = self._check_out(record, None, request)
            return record

    def _prepare_repository(self, run: str, target: str, kind: str) -> Repository:
        """Return the repository of a target, in which a run can have workspaces."""
        self.files.prepare(run)
        if kind == "copy":
            self._prepare_copies(self.target_folder(run, target))
        return self.find_repository(kind, run, target)

    def restore(
        self, run: str, output: dict[str, Any], commit: str | None, request: WorkspaceRequest
    ) -> WorkspaceRecord:
        """Return the workspace of a run that had one at this commit: its own, or a new one in a fork."""
        name = output["name"]
        self.files.prepare(run)
        repository = self.find_repository(output["kind"], run, output["target"])
        with repository_lock(repository.common_dir):
            record = self.files.load(run, name)
            if record is None:
                # The branch belongs to the run that created it; a fork continues on one of its own.
                branch = output["branch"] if output["run"] == run else default_branch(run, name)
                record = self.files.save(WorkspaceRecord(**{**output, "run": run, "branch": branch}))
            if not self._exists(record):
                record = self._check_out(record, commit, request)
            return record

    def _exists(self, record: WorkspaceRecord) -> bool:
        return record.is_ready and (self.files.directory(record.run, record.name) / ".git").exists()

    def _prepare_copies(self, folder: Path) -> None:
        if find_repository(folder) is not None:
            return
        for path in folder.rglob(".git"):
            if not path.is_relative_to(self.files.folder):
                raise GitError(
                    f"{folder} contains the repository {path.parent}. Set cwd to it, and use a worktree"
                )
        self.files.folder.mkdir(parents=True, exist_ok=True)
        Git(self.files.folder).run("init", "--quiet", "--bare", str(self.files.copies))

    def _find_base(
        self, run: str, path: str, target: str, kind: str, *, is_committed: bool = False
    ) -> FileBase:
        """Return the files of a target as they are now, or as they are committed."""
        files = self._tree_of_target(kind, run, target)
        git, message = files.git, f"Files before {path}"
        head, branch = (None, None) if git.git_dir is not None else (git.find_commit("HEAD"), git.branch())
        if is_committed and head is not None:
            return FileBase(head, git.tree_of(head), branch)
        tree = take_snapshot(files, f"{SNAPSHOT_REFS}/{run}/{workspace_name(path)}.target", message).tree
        return FileBase(head or git.commit_tree(tree, [], message), tree, branch)

    def _plan(
        self, run: str, path: str, target: str, request: WorkspaceRequest, base: FileBase
    ) -> WorkspaceRecord:
        files, name = self._tree_of_target(request.kind, run, target), workspace_name(path)
        git, head, tree = files.git, base.head, base.tree
        if request.base is not None:
            is_current = request.base in ("HEAD", base.branch)
            if (commit := head if is_current else git.find_commit(request.base)) is None:
                raise GitError(f"Unknown base '{request.base}' in {git.folder}. Name a branch, tag or commit")
            head, tree = commit, git.tree_of(commit)
        branch = request.branch or default_branch(run, name)
        if git.try_run("check-ref-format", "--branch", branch)[0] != 0:
            raise GitError(f"git does not allow '{branch}' as the name of a branch. Choose another name")
        if git.find_commit(f"refs/heads/{branch}") is not None:
            raise GitError(f"The branch '{branch}' already exists in {git.folder}. Choose another name")
        return WorkspaceRecord(
            run=run,
            name=name,
            kind=request.kind,
            branch=branch,
            base_head=head,
            base_tree=tree,
            target=target,
            prefix=files.prefix,
            target_branch=base.branch,
            step=path,
        )

    def _check_out(
        self, record: WorkspaceRecord, commit: str | None, request: WorkspaceRequest
    ) -> WorkspaceRecord:
        """Create the folder of a workspace, at a snapshot or at its last one."""
        target = self.target_tree(record)
        git = target.git
        directory = self.files.directory(record.run, record.name)
        commit = commit or git.find_commit(record.ref)
        if commit is not None and git.find_commit(commit) is None:
            raise GitError(
                f"The snapshot {commit[:12]} of '{record.name}' is not in {git.folder}, so it cannot be"
                " restored: it was deleted, or it is on another host"
            )
        head = (head_of_snapshot(git, commit) if commit is not None else None) or record.base_head
        tree = git.tree_of(commit) if commit is not None else record.base_tree
        git.try_run("worktree", "remove", "--force", "--force", str(directory))
        remove_folder(directory)
        branch_ref = f"refs/heads/{record.branch}"
        if git.find_commit(branch_ref) is None:
            git.update_ref(branch_ref, head, "0" * 40)
        self.files.index(record.run, record.name).unlink(missing_ok=True)
        git.run("worktree", "add", "--quiet", str(directory), record.branch)
        self._fill_submodules(git, directory)
        own = self.own_tree(record)
        own.change(own.write(), tree)
        self._copy_files(record, request.files)
        for artifacts in request.artifacts:
            copy_folder(self.project / artifacts, self.directory(record) / artifacts)
        take_snapshot(own, record.ref, f"Files of {record.name}")
        return self.files.save(record, is_ready=True)

    def _copy_files(self, record: WorkspaceRecord, patterns: Sequence[str]) -> None:
        """Copy untracked files of the target, such as `.env`; files of the workspace stay."""
        source, directory = self.target_folder(record.run, record.target), self.directory(record)
        for pattern in patterns:
            if os.path.isabs(pattern) or ".." in Path(pattern).parts:
                raise GitError(f"The pattern '{pattern}' leads out of the project")
            for path in sorted(source.glob(pattern)):
                place = directory / path.relative_to(source)
                if path.is_relative_to(self.files.folder) or place.exists():
                    continue
                if path.is_dir():
                    copy_folder(path, place)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, place, follow_symlinks=False)

    def _fill_submodules(self, git: Git, directory: Path) -> None:
        """Check out the submodules that the target has, from its own copies of them."""
        own = Git(directory)
        for line in (
            git.run("submodule", "status").splitlines() if (directory / ".gitmodules").exists() else []
        ):
            if line.startswith("-"):
                continue  # not checked out in the target, either
            path = line[1:].split(" ", 1)[1].rpartition(" (")[0] or line[1:].split(" ", 1)[1]
            source = Git(git.folder / path).run("rev-parse", "--path-format=absolute", "--git-common-dir")
            name = submodule_name(own, path)
            url = git.try_run("config", f"submodule.{name}.url")[1]
            local = ("-c", f"submodule.{name}.url={source}", "-c", "protocol.file.allow=always")
            own.run(*local, "submodule", "update", "--init", "--quiet", "--", path)
            if url:
                Git(directory / path).run("remote", "set-url", "origin", url)

    # -- snapshots -----------------------------------------------------------------------------

    def record_files(self, record: WorkspaceRecord, message: str) -> Snapshot:
        """Record the files of a workspace on its hidden reference."""
        own = self.own_tree(record)
        with repository_lock(self.repository_of(record).common_dir):
            return take_snapshot(own, record.ref, message)

    def diff(self, record: WorkspaceRecord, before: str | None = None, after: str | None = None) -> str:
        """Return the work of a workspace as a patch, or the difference of two snapshots."""
        git, last = (self.own_tree(record).git, after) if after else self._read_files(record)
        return format_diff(git, before or record.base_tree, last)

    def _read_files(self, record: WorkspaceRecord) -> tuple[Git, str]:
        """Return the files of a workspace; if its folder is gone, those of its last snapshot."""
        if self._exists(record):
            return self.own_tree(record).git, self.record_files(record, "State").tree
        git = self.target_tree(record).git
        last = git.find_commit(record.ref)
        return git, record.base_tree if last is None else git.tree_of(last)

    def diff_of_snapshots(self, before: str, after: str, max_chars: int) -> str | None:
        """Return the difference of two snapshots as a patch; None if they were deleted."""
        gits = [Git(self.project)] if find_repository(self.project) is not None else []
        if self.files.copies.exists():
            gits.append(Git(self.files.folder, git_dir=self.files.copies))
        for git in gits:
            if git.find_commit(before) is not None and git.find_commit(after) is not None:
                return format_diff(git, before, after, max_chars)
        return None

    # -- the end -------------------------------------------------------------------------------

    def state(self, record: WorkspaceRecord) -> WorkspaceState:
        """Return the work of a workspace that is not merged."""
        record = self.files.load(record.run, record.name) or record
        git, tree = self._read_files(record)
        tip = git.find_commit("HEAD" if self._exists(record) else f"refs/heads/{record.branch}")
        tip = tip or record.base_head
        if tree == record.merged_tree:
            return WorkspaceState([], 0, self._find_problem(record))
        files = changed_files(git, record.base_tree, tree)
        commits = len(git.run("rev-list", f"{record.base_head}..{tip}").split())
        is_pushed = tree == git.tree_of(tip) and bool(
            git.run("for-each-ref", "--count=1", "--contains", tip, "refs/remotes")
        )
        if is_pushed and commits:
            files, commits = [], 0
        return WorkspaceState(files, commits, self._find_problem(record))

    def _find_problem(self, record: WorkspaceRecord) -> str:
        if (inner := self._find_inner(record)) is not None:
            return f"'{inner.run}/{inner.name}' was created from it; remove that first"
        return self._submodule_problem(record)

    def _find_inner(self, record: WorkspaceRecord) -> WorkspaceRecord | None:
        """Return a workspace that was created from this one, whose work goes there."""
        place = record.run, record.name
        records = (other for other in self.files.records() if other.target)
        return next((each for each in records if split_target(each.run, each.target) == place), None)

    def _submodule_problem(self, record: WorkspaceRecord) -> str:
        directory = self.files.directory(record.run, record.name)
        if not (directory / ".gitmodules").exists():
            return ""
        lines = (
            Git(directory).run("submodule", "foreach", "--quiet", "--recursive", SUBMODULE_CHECK).splitlines()
        )
        return f"the submodule '{lines[0]}' has work of its own" if lines else ""

    def close(self, record: WorkspaceRecord, *, discard: bool = False) -> WorkspaceState:
        """Remove a workspace if it has no unmerged work, or if that is discarded; return its work.

        Its snapshots stay, so also discarded files can be restored until the run is deleted.
        """
        state = self.state(record)
        # The repository of an inner workspace is found through the one that it was created from.
        if state.has_work and (not discard or self._find_inner(record) is not None):
            return state
        with repository_lock(self.repository_of(record).common_dir):
            git = self.target_tree(record).git
            directory = self.files.directory(record.run, record.name)
            tip = git.find_commit(f"refs/heads/{record.branch}")
            git.try_run("worktree", "remove", "--force", "--force", str(directory))
            remove_folder(directory)
            is_pushed = tip is not None and bool(
                git.run("for-each-ref", "--count=1", "--contains", tip, "refs/remotes")
            )
            if tip is not None and not (is_pushed and tip != record.base_head):
                git.update_ref(f"{record.ref}.branch", tip)
                git.delete_ref(f"refs/heads/{record.branch}")
            self.files.forget(record.run, record.name)
        return state

    def delete_snapshots(self, run: str) -> None:
        """Delete the hidden references of a run, in every repository that has them."""
        found = find_repository(self.project)
        gits = [Git(self.project)] if found is not None else []
        if self.files.copies.exists():
            gits.append(Git(self.files.folder, git_dir=self.files.copies))
        for git in gits:
            refs = git.run("for-each-ref", "--format=delete %(refname)", f"{SNAPSHOT_REFS}/{run}/")
            if refs:
                git.run("update-ref", "--stdin", input=refs + "\n")


SUBMODULE_CHECK = (
    'test -z "$(git status --porcelain)"'
    ' && test -n "$(git for-each-ref --contains HEAD refs/remotes refs/tags)"'
    ' || echo "$sm_path"'
)
"""Prints the path of a submodule with uncommitted files, or with commits that are nowhere else."""


def split_target(run: str, target: str) -> tuple[str, str]:
    """Return the run and the name of a target; without a run, it belongs to that of its workspace."""
    owner, _, name = target.rpartition("/")
    return owner or run, name


def default_branch(run: str, name: str) -> str:
    return f"{BRANCH_PREFIX}/{run}/{name}"


def submodule_name(git: Git, path: str) -> str:
    output = git.run("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        if value == path:
            return key.removeprefix("submodule.").removesuffix(".path")
    return path


def copy_folder(source: Path, place: Path) -> None:
    """Copy the files of a folder over those of another one; links stay links."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)


def close_finished(project: Path, runs: Sequence[str]) -> None:
    """Remove the workspaces of runs that have ended, except those with unmerged work."""
    workspaces = Workspaces(project)
    for run in runs:
        for record in workspaces.files.innermost_first(run):
            try:
                workspaces.close(record)
            except GitError as error:
                logger.warning("workspace %s of run %s stays: %s", record.name, run, error)
