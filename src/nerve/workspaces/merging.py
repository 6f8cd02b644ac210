"""Merge the work of a workspace into its target. Nothing is forced, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from nerve.lazy_dataclass import dataclass
from nerve.workspaces.checkout import Workspaces
from nerve.workspaces.git import Git, GitError, repository_lock
from nerve.workspaces.records import WorkspaceRecord
from nerve.workspaces.repository import (
    MergedTree,
    changed_files,
    format_diff,
    merge_trees,
    replay_commits,
    take_snapshot,
)

MergeMethod = Literal["files", "ff", "squash", "rebase"]
"""`files` changes the files of the target; the others add commits to its branch."""
MAX_DIFF_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """How a merge ended. After a conflict, the workspace has the files of both sides, with markers."""

    status: Literal["merged", "unchanged", "conflict", "refused", "changed"]
    files: list[str]
    """The files that were merged, or that conflict."""
    reason: str = ""
    commit: str | None = None
    """The commit that the branch of the target has now."""
    tree: str = ""
    """The files of the workspace, which this outcome is about."""
    diff: str = ""

    def to_output(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Refused(Exception):
    """A merge that cannot be made as things are; the message is the reason."""


def merge_workspace(
    workspaces: Workspaces,
    record: WorkspaceRecord,
    method: MergeMethod,
    message: str,
    expected_trees: Sequence[str] = (),
) -> MergeOutcome:
    """Merge a workspace, or finish a merge that was interrupted.

    `expected_trees` are states of the files that a person has approved or a check was about; files in
    another state are not merged.
    """
    with repository_lock(workspaces.repository_of(record).common_dir):
        return Merge(workspaces, record, method, message).run(expected_trees)


class Merge:
    """One merge of a workspace."""

    def __init__(
        self, workspaces: Workspaces, record: WorkspaceRecord, method: MergeMethod, message: str
    ) -> None:
        self.workspaces = workspaces
        self.record = workspaces.files.load(record.run, record.name) or record
        self.method, self.message = method, message
        self.own, self.target = workspaces.own_tree(record), workspaces.target_tree(record)
        self.git: Git = self.own.git

    def run(self, expected_trees: Sequence[str]) -> MergeOutcome:
        self._finish_conflict()
        tree = take_snapshot(self.own, self.record.ref, f"Merge of {self.record.name}").tree
        files = changed_files(self.git, self.record.base_tree, tree)
        diff = format_diff(self.git, self.record.base_tree, tree, MAX_DIFF_CHARS)
        if tree == self.record.merged_tree:
            return MergeOutcome("merged", files, "", self.record.landing.get("commit"), tree, diff)
        if marked := self._marked_files(tree):
            return MergeOutcome("conflict", marked, "These files have conflict markers.", None, tree, diff)
        if any(expected != tree for expected in expected_trees):
            return MergeOutcome("changed", files, "Its files have changed.", None, tree, diff)
        tip = self.git.run("rev-parse", "HEAD")
        if not files and tip == self.record.base_head:
            return MergeOutcome("unchanged", [], tree=tree)
        try:
            conflict = self._merge_files(tree) if self.method == "files" else self._merge_commits(tree, tip)
        except Refused as refusal:
            return MergeOutcome("refused", files, str(refusal), None, tree, diff)
        if conflict is not None:
            both = take_snapshot(self.own, self.record.ref, f"Conflict of {self.record.name}").tree
            diff = format_diff(self.git, self.record.base_tree, both, MAX_DIFF_CHARS)
            return MergeOutcome("conflict", list(conflict), "", None, tree, diff)
        self._save(merged_tree=tree, unresolved=[])
        return MergeOutcome("merged", files, "", self.record.landing.get("commit"), tree, diff)

    def _save(self, **changes: Any) -> None:
        self.record = self.workspaces.files.save(self.record, **changes)

    # -- into the files of the target ------------------------------------------------------------

    def _merge_files(self, tree: str) -> tuple[str, ...] | None:
        """Merge into the files of the target, without a commit; return the files that conflict."""
        before = take_snapshot(self.target, f"{self.record.ref}.target", f"Before {self.record.name}").tree
        if self.record.landing.get("tree") == before and self.record.landing.get("from") == tree:
            return None  # the interrupted attempt has written all files
        merged = merge_trees(self.git, self.record.base_tree, before, tree)
        if merged.conflicts:
            self._begin_conflict(tree, before, merged)
            return merged.conflicts
        self._save(landing={"tree": merged.tree, "from": tree})
        try:
            self.target.change(before, merged.tree)
        except GitError as error:
            raise Refused(f"The files of the target have changed meanwhile. {error}") from error
        return None

    # -- onto the branch of the target -----------------------------------------------------------

    def _merge_commits(self, tree: str, tip: str) -> tuple[str, ...] | None:
        """Add the work to the branch of the target; return the files that conflict."""
        target, record = self.target.git, self.record
        if (landed := record.landing.get("commit")) is not None and record.landing.get("from") == tree:
            head = target.find_commit(self._target_ref())
            if head is not None and target.is_ancestor(landed, head):
                return None  # the interrupted attempt has moved the branch
        if record.kind == "copy":
            raise Refused(f"A copy has no commits, so it cannot be merged with '{self.method}'. Use 'files'.")
        head = target.find_commit(self._target_ref())
        if head is None:
            raise Refused(self._describe_missing_head())
        if record.base_tree != self.git.tree_of(record.base_head) and not record.is_squashed:
            raise Refused(
                f"It started from files that were not committed, so '{self.method}' would commit them."
                " Use 'files', or commit them and set 'base'."
            )
        if self.git.tree_of(tip) != tree:
            tip = self._commit_rest(tree, tip)
        commit, conflict = self._make_commit(tree, tip, head)
        if conflict is not None:
            self._begin_conflict(tree, self.git.tree_of(head), conflict)
            return conflict.conflicts
        assert commit is not None
        self._save(landing={"commit": commit, "from": tree})
        self._move_target(head, commit)
        return None

    def _describe_missing_head(self) -> str:
        branch = self.record.target_branch
        if branch is None or self.target.git.branch() == branch:
            return f"'{branch or 'HEAD'}' has no commits. Commit the files there, or merge with 'files'."
        command = f"git branch {branch} {self.record.base_head[:10]}"
        return f"The branch '{branch}', from which the work started, is gone. Create it again ({command})."

    def _target_ref(self) -> str:
        branch = self.record.target_branch
        return f"refs/heads/{branch}" if branch is not None else "HEAD"

    def _commit_rest(self, tree: str, tip: str) -> str:
        """Commit the files of the workspace that its step has not committed."""
        commit = self.git.commit_tree(tree, [tip], self.message)
        self.git.update_ref("HEAD", commit, tip)
        self.git.run("reset", "--quiet")
        return commit

    def _make_commit(self, tree: str, tip: str, head: str) -> tuple[str | None, MergedTree | None]:
        """Return the commit for the branch of the target, or the conflict."""
        if self.method == "ff":
            if not self.git.is_ancestor(head, tip):
                raise Refused(
                    f"The branch '{self.record.target_branch}' has moved on, so it cannot be fast-forwarded."
                    " Use 'squash' or 'rebase'."
                )
            return tip, None
        if self.method == "rebase" and not self.record.is_squashed:
            base = self.git.run("merge-base", self.record.base_head, tip)
            replayed = replay_commits(self.git, base, tip, head)
            return (replayed, None) if isinstance(replayed, str) else (None, replayed)
        merged = merge_trees(self.git, self.record.base_tree, self.git.tree_of(head), tree)
        if merged.conflicts:
            return None, merged
        return self.git.commit_tree(merged.tree, [head], self.message), None

    def _move_target(self, head: str, commit: str) -> None:
        target, branch = self.target.git, self.record.target_branch
        if target.branch() == branch:
            code, output, problem = target.try_run("merge", "--quiet", "--ff-only", commit)
            if code != 0:
                raise Refused(f"git cannot update the target: {' '.join((problem or output).split())}")
        elif branch is not None and f"refs/heads/{branch}" not in checked_out_branches(target):
            target.update_ref(f"refs/heads/{branch}", commit, head)
        else:
            raise Refused(f"The target has '{target.branch() or 'no branch'}' checked out, not '{branch}'.")

    # -- conflicts ---------------------------------------------------------------------------------

    def _begin_conflict(self, tree: str, onto: str, merged: MergedTree) -> None:
        """Write the files of both sides into the workspace, where a person or an agent resolves them."""
        conflict = {"before": tree, "after": merged.tree, "onto": onto}
        self._save(conflict=conflict, unresolved=list(merged.conflicts))
        self._finish_conflict()

    def _finish_conflict(self) -> None:
        if not (conflict := self.record.conflict):
            return
        if self.own.write() == conflict["before"]:
            self.own.change(conflict["before"], conflict["after"])
        # From now on its work is what differs from the target that it was merged with.
        self._save(conflict={}, base_tree=conflict["onto"], is_squashed=True)

    def _marked_files(self, tree: str) -> list[str]:
        if not self.record.unresolved:
            return []
        code, output, _ = self.git.try_run(
            *("grep", "--name-only", "-z", "-I", "-E", "-e", "^(<<<<<<<|>>>>>>>) ", tree, "--"),
            *(f":(top,literal){name}" for name in self.record.unresolved),
        )
        return [name.partition(":")[2] for name in output.split("\0") if name] if code == 0 else []


def checked_out_branches(git: Git) -> set[str]:
    lines = git.run("worktree", "list", "--porcelain").splitlines()
    return {line.removeprefix("branch ") for line in lines if line.startswith("branch ")}
