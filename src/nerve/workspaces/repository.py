"""The repository of a folder, the files in the folder, and snapshots of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nerve.lazy_dataclass import dataclass
from nerve.workspaces.git import Git, GitError

STATE_FILES = ("nerve.db*", "server*", "private/**", "logs/**", "artifacts/**", "workspaces/**")
"""Files in `.nerve` that are not files of the project."""
CONFLICT_SIDES = ("nerve/target", "nerve/workspace")
"""The names of both sides at conflict markers: references that exist while git writes the markers."""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository and the place of a folder in it."""

    top: Path
    common_dir: Path
    prefix: str
    """The folder, relative to `top`; empty if it is `top` itself."""


def find_repository(folder: Path) -> Repository | None:
    """Return the repository that a folder is in, or None."""
    if not folder.is_dir():
        return None
    git = Git(folder)
    code, output, _ = git.try_run("rev-parse", "--show-toplevel", "--git-common-dir", "--show-prefix")
    if code != 0:
        return None
    top, common_dir, prefix = (output + "\n").split("\n")[:3]
    return Repository(Path(top), (folder / common_dir).resolve(), prefix.rstrip("/"))


@dataclass(frozen=True, slots=True)
class FileTree:
    """The files of a folder, seen through an index of its own: the index of the user is not touched."""

    git: Git
    index: Path
    includes_ignored: bool = False
    prefix: str = ""
    """The project in the folder, whose state is left out."""

    @property
    def _indexed_git(self) -> Git:
        return self.git.with_index(self.index)

    def write(self) -> str:
        """Return the tree of all files that are not ignored, whether committed or not."""
        self.index.parent.mkdir(parents=True, exist_ok=True)
        if not self.index.exists() and self.git.git_dir is None:
            own = self.git.folder / self.git.run("rev-parse", "--git-path", "index")
            if own.exists():
                # With its time: git reads files again that changed at the time of the index or later.
                shutil.copy2(own, self.index)
        self.index.with_name(self.index.name + ".lock").unlink(missing_ok=True)
        forced = ["--force"] if self.includes_ignored else []
        git = self._indexed_git
        git.run("add", "--all", *forced, "--", ".", *self._excluded_paths())
        return git.run("write-tree")

    def _excluded_paths(self) -> list[str]:
        """Return the arguments that leave out the state of Nerve.

        git refuses to leave out what it ignores anyway, unless ignored files are included.
        """
        state = f"{self.prefix}/.nerve" if self.prefix else ".nerve"
        folder, ignored = self.git.folder / state, set[str]()
        found = {name: [path.name for path in folder.glob(name.removesuffix("/**"))] for name in STATE_FILES}
        if not self.includes_ignored:
            paths = [state, *(f"{state}/{path}" for names in found.values() for path in names)]
            ignored.update(
                self.git.try_run("check-ignore", "-z", "--stdin", input="\0".join(paths))[1].split("\0")
            )
        if state in ignored:
            return []
        return [
            excluded
            for name, paths in found.items()
            for excluded in (
                [
                    f":(exclude,top,literal){state}/{path}"
                    for path in paths
                    if f"{state}/{path}" not in ignored
                ]
                if any(f"{state}/{path}" in ignored for path in paths)
                else [f":(exclude,top,glob){state}/{name}"]
            )
        ]

    def change(self, before: str, after: str) -> None:
        """Change the files from one tree to another; GitError if a file is not as in `before`."""
        if before != after:
            # The index has to be that of `before`, with the state of the files on disk.
            self._indexed_git.run("read-tree", "-m", "-u", before, after)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files at one moment: a commit on a hidden reference, and its tree."""

    commit: str
    tree: str


def take_snapshot(files: FileTree, ref: str, message: str) -> Snapshot:
    """Record the files on a hidden reference; equal files are recorded once.

    The parents of the commit are the snapshot before, and the commit that is checked out.
    """
    git, tree = files.git, files.write()
    head, last = git.find_commit("HEAD"), git.find_commit(ref)
    if last is not None and git.tree_of(last) == tree and head_of_snapshot(git, last) == head:
        return Snapshot(last, tree)
    parents = [parent for parent in (last, head) if parent is not None]
    commit = git.commit_tree(tree, parents, f"{message}\n\nHead: {head or ''}\n")
    git.update_ref(ref, commit)
    return Snapshot(commit, tree)


def head_of_snapshot(git: Git, commit: str) -> str | None:
    """Return the commit that was checked out when a snapshot was taken."""
    message = git.run("show", "-s", "--format=%B", commit).strip()
    return message.rpartition("Head: ")[2].strip() or None if "Head: " in message else None


@dataclass(frozen=True, slots=True)
class MergedTree:
    """The result of a merge: a tree, and the files that conflict and contain conflict markers."""

    tree: str
    conflicts: tuple[str, ...] = ()


def merge_trees(git: Git, base: str, ours: str, theirs: str) -> MergedTree:
    """Merge two trees with a common base, without touching any file; the lock of the repository is held."""
    if base == theirs or ours == theirs:
        return MergedTree(ours)
    if base == ours:
        return MergedTree(theirs)
    root = git.commit_tree(base, [], "base")
    sides = [git.commit_tree(tree, [root], name) for tree, name in ((ours, "ours"), (theirs, "theirs"))]
    merge = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
    code, output, problem = git.try_run(*merge, *sides)
    if code == 1:
        with named_sides(git, sides):
            code, output, problem = git.try_run(*merge, *CONFLICT_SIDES)
    if code not in (0, 1):
        if "merge-tree" in problem and "usage" in problem:
            raise GitError("Merges need git 2.38 or newer. Update git")
        raise GitError(f"git merge-tree failed in {git.folder}: {problem.strip()}")
    tree, *names = output.rstrip("\0").split("\0")
    return MergedTree(tree, tuple(dict.fromkeys(name for name in names if name)) if code == 1 else ())


@contextmanager
def named_sides(git: Git, commits: Sequence[str]) -> Iterator[None]:
    """Give two commits names: git writes at conflict markers what it was called with."""
    refs = [f"refs/{name}" for name in CONFLICT_SIDES]
    try:
        for ref, commit in zip(refs, commits, strict=True):
            git.update_ref(ref, commit)
        yield
    finally:
        for ref in refs:
            git.delete_ref(ref)


def replay_commits(git: Git, base: str, tip: str, onto: str) -> str | MergedTree:
    """Return the last copy of the commits from `base` to `tip` on another commit, or the first conflict."""
    commits = git.run("rev-list", "--reverse", "--first-parent", f"{base}..{tip}").split()
    for commit in commits:
        merged = merge_trees(git, f"{git.tree_of(commit + '^')}", git.tree_of(onto), git.tree_of(commit))
        if merged.conflicts:
            return merged
        if merged.tree != git.tree_of(onto):
            onto = git.commit_tree(merged.tree, [onto], git.run("show", "-s", "--format=%B", commit), commit)
    return onto


def format_diff(git: Git, before: str, after: str, max_chars: int = 100_000) -> str:
    """Return the difference of two trees as a patch, cut after a number of characters."""
    text = git.run("diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", before, after)
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[{len(text) - max_chars:,} more characters]\n"


def changed_files(git: Git, before: str, after: str) -> list[str]:
    """Return the files that differ between two trees."""
    output = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after)
    return [
        name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for name in output.split("\0")
        if name
    ]


def remove_folder(folder: Path) -> None:
    """Remove a folder with all its files, also read-only ones."""

    def make_writable(function: object, path: str, _: object) -> None:
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        function(path)  # type: ignore[operator]

    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, onerror=make_writable)
