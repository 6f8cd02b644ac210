"""Records of workspaces: one file for each, written before anything is created."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.workspaces.git import GitError

FOLDER = ".nerve/workspaces"
SNAPSHOT_REFS = "refs/nerve-files"
"""Where the snapshots are. In `refs/nerve`, git would take the name of a branch for its snapshot."""
IGNORE_FILE = "*\n"
OUTPUT_FIELDS = (
    *("run", "name", "kind", "branch", "base_head", "base_tree", "target", "prefix"),
    *("target_branch", "step"),
)
"""What the journal has of a record."""
MAX_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class WorkspaceRecord:
    """A workspace of a run: what it was created from, where its work goes, and what has been merged."""

    run: str
    name: str
    kind: str
    branch: str
    base_head: str
    """The commit that its branch started from."""
    base_tree: str
    """The files that its work is compared with."""
    target: str
    """The workspace that its work is merged into, as `NAME`, or `RUN/NAME` for one of another run; empty for
    the project."""
    prefix: str = ""
    """The place of the project in its repository."""
    target_branch: str | None = None
    step: str = ""
    is_ready: bool = False
    merged_tree: str | None = None
    """The files that have been merged."""
    landing: dict[str, str] = field(default_factory=dict)
    """A merge that has begun: the tree or commit that the target gets."""
    conflict: dict[str, str] = field(default_factory=dict)
    """A conflict that is being written into the workspace: the trees before, after and below it."""
    unresolved: list[str] = field(default_factory=list)
    """The files with conflicts that are in the workspace."""
    is_squashed: bool = False
    """Whether a conflict was resolved, so that its commits cannot be replayed one by one."""

    @property
    def ref(self) -> str:
        return f"{SNAPSHOT_REFS}/{self.run}/{self.name}"

    def to_output(self) -> dict[str, Any]:
        """Return what the journal keeps: nothing that depends on the machine."""
        return {name: getattr(self, name) for name in OUTPUT_FIELDS}


@dataclass(frozen=True, slots=True)
class WorkspaceFiles:
    """The files of the workspaces of one project."""

    project: Path

    @property
    def folder(self) -> Path:
        return self.project.absolute() / FOLDER

    def directory(self, run: str, name: str) -> Path:
        return self.folder / run / name

    def record_file(self, run: str, name: str) -> Path:
        return self.folder / run / f"{name}.json"

    def index(self, run: str, name: str) -> Path:
        return self.folder / run / f"{name}.index"

    @property
    def copies(self) -> Path:
        """The private repository of folders that are not in a repository."""
        return self.folder / "copies.git"

    def prepare(self, run: str) -> None:
        """Create the folder of a run, which git ignores; GitError if a part of it is a symbolic link."""
        for path in (self.folder.parent, self.folder, self.folder / run):
            if path.is_symlink():
                raise GitError(f"{path} is a symbolic link. Remove it")
        (self.folder / run).mkdir(parents=True, exist_ok=True)
        if not (ignore_file := self.folder / ".gitignore").exists():
            ignore_file.write_text(IGNORE_FILE)

    def load(self, run: str, name: str) -> WorkspaceRecord | None:
        try:
            return WorkspaceRecord(**json.loads(self.record_file(run, name).read_text()))
        except FileNotFoundError:
            return None

    def save(self, record: WorkspaceRecord, **changes: Any) -> WorkspaceRecord:
        """Write a record with some changes, in one step, and return it."""
        record = replace(record, **changes)
        file = self.record_file(record.run, record.name)
        temporary = file.with_suffix(".new")
        while not temporary.exists():
            # The removal of another workspace of the run removes the folder when that is empty.
            file.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                temporary.touch()
        with open(temporary, "w") as opened:
            json.dump(asdict(record), opened)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
        return record

    def forget(self, run: str, name: str) -> None:
        """Remove the record of a workspace, and the folder of its run if it was the last one."""
        self.index(run, name).unlink(missing_ok=True)
        self.record_file(run, name).unlink(missing_ok=True)
        try:
            (self.folder / run).rmdir()
        except OSError:
            return

    def records(self, run: str | None = None) -> Iterator[WorkspaceRecord]:
        """Yield the records of all workspaces, or of those of one run."""
        for file in sorted(self.folder.glob(f"{run or '*'}/*.json")):
            if (record := self.load(file.parent.name, file.stem)) is not None:
                yield record

    def innermost_first(self, run: str) -> list[WorkspaceRecord]:
        """Return the workspaces of a run in the order in which they can be removed."""
        records = {record.name: record for record in self.records(run)}

        def count_outer(record: WorkspaceRecord) -> int:
            outer = records.get(record.target)
            return 0 if outer is None else 1 + count_outer(outer)

        return sorted(records.values(), key=count_outer, reverse=True)


def workspace_name(path: str) -> str:
    """Return the name of the workspace of a step: its path, in characters for files and branches."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path).strip("-") or "run"
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:80]}-{abs_hash(path)}"


def abs_hash(text: str) -> str:
    from hashlib import sha256  # imported here, because few paths are that long

    return sha256(text.encode()).hexdigest()[:16]
