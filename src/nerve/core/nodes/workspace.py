"""Workspaces of a run: the steps that create, merge, read and remove them."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nerve.core.nodes.active_workspace import MAX_LISTED_FILES, project_of, to_request
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.result import Result
from nerve.core.validation import require_one_of, require_str
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from nerve.core.nodes.active_workspace import ActiveWorkspace
    from nerve.core.nodes.context import ExecutionContext
    from nerve.workspaces.checkout import Workspaces
    from nerve.workspaces.records import WorkspaceRecord

WorkspaceKind = Literal["shared", "worktree", "copy"]
MergeMethod = Literal["files", "ff", "squash", "rebase"]
MergePolicy = Literal["files", "ff", "squash", "rebase", "none"]
KINDS, METHODS = ("shared", "worktree", "copy"), ("files", "ff", "squash", "rebase")
COMMIT_METHODS = ("ff", "squash", "rebase")
MAX_PREVIEW_CHARS = 20_000
BASE_FIELDS = ("head", "tree", "branch")
"""What a journal has of the files that the workspaces of parallel steps start from."""
GENERATED_ID = re.compile(r"^_(.+)_\d+$")
"""The id of a step that a notation has made from the name of a variable."""


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """How a workspace is created, and what happens to its work; `shared` creates none."""

    kind: WorkspaceKind = "worktree"
    base: str | None = None
    """A branch, tag or commit to start from; "." for the files as they are, committed or not."""
    branch: str | None = None
    files: tuple[str, ...] = ()
    setup: str | None = None
    """A shell command that prepares the workspace."""
    merge: MergePolicy = "files"
    """How the work is merged when the step has succeeded; `none` leaves it in the workspace."""

    def __post_init__(self) -> None:
        require_one_of("kind of a workspace", self.kind, KINDS)
        require_one_of("merge of a workspace", self.merge, (*METHODS, "none"))
        for name in ("base", "branch", "setup"):
            if (value := getattr(self, name)) is not None:
                require_str(f"{name} of a workspace", value)

    @property
    def start(self) -> str | None:
        """The commit to start from, or None for the files as they are."""
        if self.base is not None:
            return None if self.base == "." else self.base
        return "HEAD" if self.merge in COMMIT_METHODS else None

    def to_request(self, artifacts: str | None) -> dict[str, Any]:
        """Return the request of the step that creates the workspace, as plain data."""
        return {
            "kind": self.kind,
            "base": self.start,
            "branch": self.branch,
            "files": list(self.files),
            "artifacts": artifacts,
        }


class WorkspaceLeaf(Node):
    """A step that creates, merges, reads or removes a workspace; it can be repeated after a crash."""

    async def execute(self, context: ExecutionContext) -> Result:
        try:
            output = await asyncio.to_thread(self.change, context)
        except NerveError as error:
            return Result.failed(str(error), type(error).__name__)
        files = output.pop("workspace", None)
        return Result.ok(output, None if files is None else {"workspace": files})

    def change(self, context: ExecutionContext) -> dict[str, Any]:
        """Do the work, in a thread; the output can have the files of a `workspace` that it has changed."""
        raise NotImplementedError


class OpenWorkspace(WorkspaceLeaf):
    """Create a workspace."""

    def change(self, context: ExecutionContext) -> dict[str, Any]:
        from nerve.workspaces.checkout import FileBase

        given: Any = context.input
        base = given.get("base")  # missing in the requests of earlier versions
        record = workspaces_of(context).open(
            context.run_id,
            given["path"],
            record_target(context, given["path"]),
            to_request(given["request"]),
            None if base is None else FileBase(**base),
        )
        return record.to_output()


class RecordBase(WorkspaceLeaf):
    """Record the files that the workspaces of parallel steps start from, whenever each of them starts."""

    def change(self, context: ExecutionContext) -> dict[str, Any]:
        from nerve.workspaces.git import GitError

        given: Any = context.input
        path, kind = given["path"], given["kind"]
        target = record_target(context, path)
        try:
            base = workspaces_of(context).record_base(context.run_id, path, target, kind)
        except GitError:
            return dict.fromkeys(BASE_FIELDS)  # the steps that need a workspace report it
        return {name: getattr(base, name) for name in BASE_FIELDS}


def record_target(context: ExecutionContext, path: str) -> str:
    """Return what the workspace of a step is created from, after its files were recorded or restored."""
    if (active := context.workspace) is None:
        return ""
    active.record_files(project_of(context), f"Before {path}")
    return active.address_in(context.run_id)


class MergeWorkspace(WorkspaceLeaf):
    """Merge the work of a workspace into the files or the branch that it comes from.

    `trees` are states of its files; it is merged only if its files are in each of them.
    """

    def __init__(
        self,
        id: str | None = None,
        session: NodeRegistry | None = None,
        *,
        trees: Sequence[str] | None = None,
    ) -> None:
        super().__init__(id, session)
        self.trees = None if trees is None else list(trees)

    def change(self, context: ExecutionContext) -> dict[str, Any]:
        from nerve.workspaces.merging import merge_workspace

        given: Any = context.input
        workspaces = workspaces_of(context)
        active = context.workspace
        if active is not None and given["name"] in (
            active.address_in(context.run_id),
            *step_names(active.output["step"]),
        ):
            active.restore(workspaces)
        record = find_record(list(workspaces.files.records(context.run_id)), given["name"])
        target = None if active is None else active.find_target(context.run_id, record.target)
        before = None if target is None else target.record_files(workspaces.project, f"Before {context.path}")
        outcome = merge_workspace(workspaces, record, given["method"], given["message"], self.trees or ())
        output = outcome.to_output()
        if target is not None and before is not None and outcome.status == "merged":
            after = target.record_files(workspaces.project, f"After {context.path}")
            output["workspace"] = target.describe_files(context.run_id, before, after)
        return output


class ReadWorkspace(WorkspaceLeaf):
    """Read the difference between a workspace and what it was created from."""

    def change(self, context: ExecutionContext) -> dict[str, Any]:
        active = context.workspace
        assert active is not None
        workspaces = workspaces_of(context)
        snapshot = active.record_files(project_of(context), f"At {context.path}")
        record = workspaces.files.load(active.run_id, active.name)
        assert record is not None
        return {
            "tree": snapshot.tree,
            "diff": workspaces.diff(record, after=snapshot.tree)[:MAX_PREVIEW_CHARS],
        }


class CloseWorkspace(WorkspaceLeaf):
    """Remove a workspace, unless it has work that is not merged."""

    def change(self, context: ExecutionContext) -> dict[str, Any]:
        given: Any = context.input
        workspaces = workspaces_of(context)
        record = workspaces.find(context.run_id, given["name"])
        if record is None:
            return {"removed": True}
        state = workspaces.close(record)
        return {
            "removed": not state.has_work,
            "files": state.files[:MAX_LISTED_FILES],
            "branch": record.branch,
        }


def find_active(context: ExecutionContext, name: str) -> ActiveWorkspace | None:
    """Return the workspace of the run with this name, or of the step with it, if it is one."""
    active = context.workspaces
    found = [active[name]] if name in active else []
    found = found or [each for each in active.values() if name in step_names(each.output["step"])]
    return found[0] if len(found) == 1 else None


def find_record(records: list[WorkspaceRecord], name: str) -> WorkspaceRecord:
    """Return the workspace of a step by its name or its id; WorkspaceNotFound if it is not exactly one."""
    found = [record for record in records if record.name == name] or [
        record for record in records if name in step_names(record.step)
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(record.name for record in found or records) or "none"
    if found:
        raise WorkspaceNotFound(f"The step '{name}' has several workspaces. Name one of: {names}")
    raise WorkspaceNotFound(f"This run has no workspace '{name}'. Its workspaces: {names}")


def step_names(path: str) -> tuple[str, str, str]:
    """Return the names of a step: the last part of its path, without its number, and its name in Lisp."""
    last = path.rpartition("/")[2]
    id = last.partition("[")[0]
    return last, id, GENERATED_ID.sub(r"\1", id)


class WorkspaceNotFound(NerveError):
    """A run has no workspace of this name."""


BASE_PATCH = "nerve:base-of-parallel-steps"
"""The patch that runs of earlier versions do not have, whose parallel steps record no base."""


@dataclass(frozen=True, slots=True)
class ParallelBase:
    """The files that the workspaces of parallel steps start from."""

    path: str
    """The parent of the steps; steps below them start from the files as they are then."""
    kind: str
    files: dict[str, Any]
    """The commit, the tree and the branch; see `RecordBase`."""


async def share_base(context: ExecutionContext, nodes: Iterable[Node], path: str) -> ExecutionContext:
    """Return the context for parallel nodes, after the files were recorded from which their workspaces start.

    Without a common base, a workspace that is created late has work of other branches that is merged
    already: whether both conflict would depend on the load of the machine.
    """
    kinds = (getattr(node, "workspace_kind", None) for node in nodes)
    kind = next((kind for kind in kinds if kind not in (None, "shared")), None)
    if kind is None or not context.runtime.is_patched(BASE_PATCH):
        return context
    recorded = await context.call(RecordBase("base"), {"path": path, "kind": kind}, path=path)
    shared = copy.copy(context)
    shared.base = None
    if recorded.success and recorded.output["head"] is not None:
        shared.base = ParallelBase(context.path, kind, recorded.output)
    return shared


def find_base(context: ExecutionContext, path: str, kind: str) -> dict[str, Any] | None:
    """Return the recorded files that the workspace of a step starts from; None for the present ones."""
    base = context.base
    if base is None or base.kind != kind or path.rpartition("/")[0] != base.path:
        return None
    return base.files


def workspaces_of(context: ExecutionContext) -> Workspaces:
    from nerve.workspaces.checkout import Workspaces  # imported here: few runs have workspaces

    return Workspaces(project_of(context))


async def read_files(context: ExecutionContext, path: str) -> dict[str, Any] | None:
    """Return the tree and the changes of the workspace that a gate is in, or None."""
    if context.workspace is None:
        return None
    read = await context.call(ReadWorkspace("files"), None, path=path)
    files: dict[str, Any] | None = read.output if read.success else None
    return files
