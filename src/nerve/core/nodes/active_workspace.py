"""The workspace that a part of a run works in, and the files of the steps there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.core.nodes.base import Node
from nerve.core.nodes.evidence import Evidence
from nerve.core.result import Result
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext
    from nerve.workspaces.checkout import WorkspaceRequest, Workspaces
    from nerve.workspaces.repository import Snapshot

MAX_LISTED_FILES = 50


@dataclass(slots=True)
class ActiveWorkspace:
    """A workspace that a part of a run works in."""

    run_id: str
    """The run that has the workspace; the runs that it calls work there, too."""
    output: dict[str, Any]
    """What the journal has about it."""
    request: dict[str, Any]
    outer: ActiveWorkspace | None = None
    last_commit: str | None = None
    """The files after the last step that has ended."""
    name: str = ""
    artifacts: str | None = None
    """The folder with the artifacts of the run whose steps work in it, relative to the project."""
    evidence: Evidence = field(default_factory=Evidence, repr=False)
    """What is known about its files: approvals and checks."""
    is_live: bool = False
    """Whether a step has worked in it in this process, so that copied results do not count any more."""
    _is_found: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.name or self.output["name"]
        self.artifacts = self.artifacts or self.request["artifacts"]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ActiveWorkspace:
        """Return the workspace that `to_data` has encoded."""
        outer = None if data.get("outer") is None else cls.from_data(data["outer"])
        return cls(
            data["run"],
            dict(data["output"]),
            dict(data["request"]),
            outer,
            data.get("commit"),
            data.get("name") or "",
            data.get("artifacts"),
        )

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON, for a run or a process that works in it."""
        return {
            "run": self.run_id,
            "name": self.name,
            "output": self.output,
            "request": self.request,
            "commit": self.last_commit,
            "artifacts": self.artifacts,
            "outer": None if self.outer is None else self.outer.to_data(),
        }

    @property
    def folder(self) -> str:
        """Its folder that takes the place of the project, relative to the project."""
        return os.path.normpath(
            os.path.join(".nerve/workspaces", self.run_id, self.name, self.output["prefix"])
        )

    def address_in(self, run_id: str) -> str:
        """Return its name in a run, which has the name of the other run if it belongs to one."""
        return self.name if run_id == self.run_id else f"{self.run_id}/{self.name}"

    def enter(self, context: ExecutionContext) -> ExecutionContext:
        """Return a context whose steps work in the workspace; it shares the numbering of steps."""
        return context.in_workspace(self, self._inner_folder(context))

    def _inner_folder(self, context: ExecutionContext) -> str:
        if context.folder is None:
            return self.folder
        outer_root = "." if self.outer is None else self.outer.folder
        below = os.path.relpath(context.folder, outer_root)
        if os.path.isabs(context.folder) or below.startswith(".."):
            raise ValueError(f"The workspace '{self.name}' cannot have the folder {context.folder}")
        return os.path.normpath(os.path.join(self.folder, below))

    # -- files of steps ------------------------------------------------------------------------

    def note_result(self, result: Result) -> None:
        """Note the files after a step in it, or after a merge into a workspace around it."""
        recorded = result.get("attributes", {}).get("workspace")
        if isinstance(recorded, dict):
            self.note_files(recorded)

    def note_files(self, recorded: Mapping[str, Any]) -> None:
        """Note what the result of a step has about the files."""
        if recorded.get("name") in (self.name, self.output["name"]):
            self.last_commit = recorded.get("after")
            self.evidence.note_files(recorded)
        elif self.outer is not None:
            self.outer.note_files(recorded)

    async def execute(self, node: Node, context: ExecutionContext) -> Result:
        """Execute a step, and record the files before and after it."""
        try:
            before = await self._record_in_thread(context, f"Before {context.path}")
        except NerveError as error:
            return Result.failed(str(error), type(error).__name__)
        try:
            result = Result.of(await node.execute(context))
        except Exception:
            await self._record_in_thread(context, f"After {context.path}")
            raise
        after = await self._record_in_thread(context, f"After {context.path}")
        record = self.describe_files(context.run_id, before, after)
        if before.tree != after.tree:
            files = await asyncio.to_thread(self._changed_files, context, before, after)
            record["files"] = files[:MAX_LISTED_FILES]
            if len(files) > MAX_LISTED_FILES:
                record["more_files"] = len(files) - MAX_LISTED_FILES
        result["attributes"] = {**result.attributes, "workspace": record}
        return result

    def describe_files(self, run_id: str, before: Snapshot, after: Snapshot) -> dict[str, Any]:
        """Return what the result of a step of a run has about the files."""
        owner = {} if run_id == self.run_id else {"run": self.run_id}
        commits = {"before": before.commit, "after": after.commit}
        return {"name": self.name, **owner, **commits, "tree": after.tree}

    def find_target(self, run_id: str, target: str) -> ActiveWorkspace | None:
        """Return this workspace, or the one around it, that a run has as a target."""
        if self.address_in(run_id) == target:
            return self
        return None if self.outer is None else self.outer.find_target(run_id, target)

    def mark_live(self) -> None:
        """Let copied results of later steps, here and in the workspaces around, not count any more."""
        self.is_live = True
        if self.outer is not None:
            self.outer.mark_live()

    async def _record_in_thread(self, context: ExecutionContext, message: str) -> Snapshot:
        return await asyncio.to_thread(self.record_files, project_of(context), message)

    def record_files(self, project: Path, message: str) -> Snapshot:
        """Record the files; a workspace that is gone, or that a fork does not have yet, is restored."""
        from nerve.workspaces.checkout import Workspaces, copy_folder

        workspaces = Workspaces(project)
        self.restore(workspaces)
        record = workspaces.files.load(self.run_id, self.name)
        assert record is not None
        for artifacts in self._artifacts_folders():
            copy_folder(workspaces.directory(record) / artifacts, project / artifacts)
        return workspaces.record_files(record, message)

    def restore(self, workspaces: Workspaces) -> None:
        """Make sure that the workspace and those around it exist."""
        if self.outer is not None:
            self.outer.restore(workspaces)
        if self._is_found and (workspaces.files.directory(self.run_id, self.name) / ".git").exists():
            return
        # A run that was forked from a called one has a copy of the workspace of the caller.
        target = "" if self.outer is None else self.outer.address_in(self.run_id)
        output = {**self.output, "name": self.name, "target": target}
        request = to_request(self.request, self._artifacts_folders())
        workspaces.restore(self.run_id, output, self.last_commit, request)
        self._is_found = True

    def _artifacts_folders(self) -> tuple[str, ...]:
        folders = (self.request["artifacts"], self.artifacts)
        return tuple(dict.fromkeys(folder for folder in folders if folder is not None))

    def _changed_files(self, context: ExecutionContext, before: Snapshot, after: Snapshot) -> list[str]:
        from nerve.workspaces.checkout import Workspaces
        from nerve.workspaces.repository import changed_files

        workspaces = Workspaces(project_of(context))
        record = workspaces.files.load(self.run_id, self.name)
        assert record is not None
        return changed_files(workspaces.own_tree(record).git, before.tree, after.tree)


# -- runs that are called in a workspace -------------------------------------------------------


def share_workspace(context: ExecutionContext) -> dict[str, Any] | None:
    """Return the workspace of a context, and the folder there, as the start of a called run has them."""
    if (workspace := context.workspace) is None:
        return None
    folder = context.folder or workspace.folder
    directory = folder if os.path.isabs(folder) else os.path.relpath(folder, workspace.folder)
    return {**workspace.to_data(), "directory": directory}


def enter_shared_workspace(
    context: ExecutionContext, shared: Mapping[str, Any], artifacts: str | None
) -> ExecutionContext:
    """Return the context of a run that was called in a workspace."""
    workspace = ActiveWorkspace.from_data({**shared, "artifacts": artifacts})
    folder = os.path.normpath(os.path.join(workspace.folder, shared["directory"]))
    return context.in_workspace(workspace, folder)


def move_shared_workspace(
    shared: Mapping[str, Any], owners: Mapping[str, str], fork_id: str
) -> dict[str, Any]:
    """Return a shared workspace as a fork has it; `owners` has the ids of the copies of runs.

    If the run that has it is not copied, the fork gets a copy of it.
    """
    outer = None if shared.get("outer") is None else move_shared_workspace(shared["outer"], owners, fork_id)
    if (owner := owners.get(shared["run"])) is not None:
        return {**shared, "run": owner, "outer": outer}
    # The dot keeps it apart from the workspaces of the steps of the fork, whose names have none.
    return {**shared, "run": fork_id, "name": f"caller.{shared['name']}", "outer": outer}


def to_request(data: Mapping[str, Any], artifacts: tuple[str, ...] = ()) -> WorkspaceRequest:
    """Return the request for a workspace; `artifacts` are folders to copy besides that of the request."""
    from nerve.workspaces.checkout import WorkspaceRequest

    folders = artifacts or tuple(folder for folder in (data["artifacts"],) if folder is not None)
    return WorkspaceRequest(**{**data, "files": tuple(data["files"]), "artifacts": folders})


def project_of(context: ExecutionContext) -> Path:
    """Return the project of a context on this machine."""
    return (context.session.project if context.session is not None else Path()).absolute()
