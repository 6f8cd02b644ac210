"""WorkspaceNode: a node that works in a workspace of its own; MergeNode merges the work of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, ClassVar, Literal

from nerve.core.nodes.active_workspace import ActiveWorkspace
from nerve.core.nodes.base import ControlNode, Node, NodeRegistry
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.evidence import Evidence
from nerve.core.nodes.workspace import (
    MAX_PREVIEW_CHARS,
    METHODS,
    CloseWorkspace,
    MergeMethod,
    MergePolicy,
    MergeWorkspace,
    OpenWorkspace,
    WorkspaceKind,
    WorkspaceSettings,
    find_active,
    find_base,
)
from nerve.core.result import Result
from nerve.core.runtime import GateWait
from nerve.core.validation import require_node, require_one_of, require_str

OnConflict = Literal["ask", "fail"] | Node
RETRY, KEEP, FAIL = "retry", "keep", "fail"
CONFLICT_CHOICES = [RETRY, KEEP, FAIL]
CONFLICT_GATE = "merge"
"""The name of the gates about work that cannot be merged."""
MAX_RESOLUTIONS = 3
"""How often an agent may try to resolve the conflicts of one merge before a person is asked."""


class WorkspaceNode(ControlNode):
    """Execute a node in a workspace, and merge its work when it has succeeded.

    `shared` creates no workspace: it says that agents in the node may edit the same files at the same time.
    `on_conflict` says what happens to a conflict: a person is asked, the node fails, or a node such as an
    agent resolves it in the workspace. Keywords are those of `WorkspaceSettings`, and those of a policy.
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry | None,
        body: Node,
        kind: WorkspaceKind = "worktree",
        *,
        base: str | None = None,
        branch: str | None = None,
        files: Iterable[str] = (),
        setup: str | None = None,
        merge: MergePolicy = "files",
        on_conflict: OnConflict = "ask",
        **policy: Any,
    ) -> None:
        self.body = require_node(f"body of '{id}'", body)
        self.settings = WorkspaceSettings(kind, base, branch, tuple(files), setup, merge)
        self.on_conflict = require_on_conflict(on_conflict)
        super().__init__(id, session, **policy)

    @property
    def workspace_kind(self) -> str:
        """The kind of workspace that the body works in."""
        return self.settings.kind

    def parts(self) -> Iterable[Node]:
        return [self.body, *([self.on_conflict] if isinstance(self.on_conflict, Node) else [])]

    async def execute(self, context: ExecutionContext) -> Result:
        artifacts = default_artifacts(context)
        scope = WorkspaceScope(self.settings, self.on_conflict, f"{context.path}/~", artifacts, context.path)
        return await scope.execute(context, lambda inner: inner.call(self.body, context.input))


class MergeNode(ControlNode):
    """Merge the work that a step has left in its workspace, because its `merge` is `none`.

    `of` is the id of the step or the name of the workspace; without it, the input names it.
    """

    takes_result: ClassVar[bool] = False

    def __init__(
        self,
        id: str,
        session: NodeRegistry | None,
        of: str | None = None,
        method: MergeMethod = "files",
        *,
        on_conflict: OnConflict = "ask",
        **policy: Any,
    ) -> None:
        self.of = None if of is None else require_str(f"of in '{id}'", of)
        self.method = require_one_of(f"method of '{id}'", method, METHODS)
        self.on_conflict = require_on_conflict(on_conflict)
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.on_conflict] if isinstance(self.on_conflict, Node) else []

    async def execute(self, context: ExecutionContext) -> Result:
        name = self.of if self.of is not None else context.input
        if not isinstance(name, str):
            return Result.failed(f"'{self.id}' needs the name of a workspace, got {name!r}", "ValueError")
        return await merge_by_name(context, name, self.method, self.on_conflict, f"{context.path}/~merge")


class WorkspaceScope:
    """One use of a workspace: its steps have paths with a prefix of their own."""

    def __init__(
        self,
        settings: WorkspaceSettings,
        on_conflict: OnConflict,
        prefix: str,
        artifacts: str | None,
        path: str,
    ) -> None:
        self.settings, self.on_conflict = settings, on_conflict
        self.prefix, self.artifacts, self.path = prefix, artifacts, path
        self.active: ActiveWorkspace | None = None

    async def execute(
        self, context: ExecutionContext, run_body: Callable[[ExecutionContext], Awaitable[Result]]
    ) -> Result:
        """Run a body in the workspace, and merge and remove the workspace if the body has succeeded."""
        if self.settings.kind == "shared":
            return await run_body(context.sharing_files())
        opened = await self.open(context)
        if not opened.success:
            return opened
        assert self.active is not None
        inner = self.active.enter(context)
        prepared = await self.set_up(inner)
        if not prepared.success:
            return prepared
        result = await run_body(inner)
        if not result.success:
            return result
        ended = await self.end(inner)
        return result if ended.success else ended

    async def open(self, context: ExecutionContext) -> Result:
        request = self.settings.to_request(self.artifacts)
        given: dict[str, Any] = {"path": self.path, "request": request}
        if (base := find_base(context, self.path, self.settings.kind)) is not None:
            given["base"] = base
        opened = await context.call(OpenWorkspace("workspace"), given, path=f"{self.prefix}workspace")
        if opened.success:
            self.active = ActiveWorkspace(context.run_id, opened.output, request, context.workspace)
            context.workspaces[self.active.name] = self.active
        return opened

    async def set_up(self, inner: ExecutionContext) -> Result:
        if self.settings.setup is None:
            return Result.ok()
        command = BashNode("setup", None, self.settings.setup)
        return await inner.call(command, None, path=f"{self.prefix}setup")

    async def end(self, inner: ExecutionContext) -> Result:
        """Merge the work, and remove the workspace if nothing is left in it."""
        assert self.active is not None
        self.active.evidence.is_body_done = True
        if self.settings.merge != "none":
            merged = await self.merge(inner, self.settings.merge)
            if not merged.success:
                return merged
        given = {"name": self.active.address_in(inner.run_id)}
        closed = await inner.call(CloseWorkspace("close"), given, path=f"{self.prefix}close")
        if closed.success and closed.output["removed"]:
            inner.workspaces.pop(self.active.name, None)
        return closed

    async def merge(self, inner: ExecutionContext, method: str, number: str = "") -> Result:
        """Merge the work; a conflict is resolved by a person or a node, and then merged again."""
        assert self.active is not None
        return await merge_by_name(
            inner, self.active.name, method, self.on_conflict, f"{self.prefix}merge{number}"
        )


async def merge_by_name(
    context: ExecutionContext, name: str, method: str, on_conflict: OnConflict, path: str
) -> Result:
    """Merge a workspace of this run, until it is merged or a person leaves it as it is.

    An approval and passed checks count only for the files that they were about: after a change in between,
    the checks are repeated and a person is asked again.
    """
    given = {"name": name, "method": method, "message": f"Merge {name}"}
    active = find_active(context, name)
    evidence = Evidence() if active is None else active.evidence
    if active is not None and active is not context.workspace:
        context = context.in_workspace(active, active.folder)
    for number in count(1):
        suffix = "" if number == 1 else f"[{number}]"
        merge = MergeWorkspace("merge", trees=evidence.expected_trees())
        merged = await context.call(merge, given, path=f"{path}{suffix}")
        if not merged.success or merged.output["status"] in ("merged", "unchanged"):
            return merged
        status, problem = merged.output["status"], describe_problem(name, merged.output)
        if status == "changed":
            if failure := await evidence.repeat_checks(merged.output["tree"]):
                return Result.failed(f"{problem} {failure}", "NotAsExpected", merged.output)
            if not evidence.needs_approval:
                continue
        if on_conflict == "fail":
            return Result.failed(problem, "MergeConflict", merged.output)
        if isinstance(on_conflict, Node) and number <= MAX_RESOLUTIONS and status == "conflict":
            resolved = await context.call(on_conflict, problem, path=f"{path}~resolve{suffix}")
            if not resolved.success:
                return resolved
            continue
        folder = None if active is None else active.folder
        answer = await context.wait(conflict_gate(f"{path}~conflict{suffix}", problem, merged.output, folder))
        if answer == KEEP:
            return Result.ok({**merged.output, "status": "kept"})
        if answer == FAIL:
            return Result.failed(problem, "MergeConflict", merged.output)
        # A person who resolves a conflict has edited the files; any other answer is about those shown.
        evidence.approved_tree = merged.output["tree"] if status == "changed" else None
    raise AssertionError("unreachable")


def conflict_gate(path: str, problem: str, outcome: dict[str, Any], folder: str | None) -> GateWait:
    """Return the gate about work that could not be merged, with the difference."""
    retry = "merge them as they are shown" if outcome["status"] == "changed" else "merge again"
    return GateWait(
        path,
        f"{problem} Answer '{RETRY}' to {retry}, '{KEEP}' to leave the work in its workspace, or '{FAIL}'.",
        CONFLICT_CHOICES,
        node_id=CONFLICT_GATE,
        # Not in the prompt: a fork has the same prompt, and a folder of its own.
        note=None if folder is None else f"Its workspace is {folder}",
        input_preview=str(outcome["diff"])[:MAX_PREVIEW_CHARS],
    )


def describe_problem(name: str, outcome: dict[str, Any]) -> str:
    files = ", ".join(outcome["files"][:10])
    if outcome["status"] == "refused":
        return f"The work of '{name}' cannot be merged: {outcome['reason']}"
    if outcome["status"] == "changed":
        return f"The files of '{name}' have changed since they were approved or checked."
    if outcome["reason"]:
        return (
            f"The work of '{name}' still has conflict markers in {files}. Edit the files in its workspace"
            " (nerve workspaces) and remove the markers."
        )
    return (
        f"The work of '{name}' conflicts with other work in {files}. Both sides are in the files of its"
        f" workspace (nerve workspaces); edit them there and remove the conflict markers."
    )


def require_on_conflict(value: Any) -> OnConflict:
    if value in ("ask", "fail") or callable(getattr(value, "execute", None)):
        on_conflict: OnConflict = value
        return on_conflict
    raise ValueError(f"on_conflict must be 'ask', 'fail' or a node, got {value!r}")


def default_artifacts(context: ExecutionContext) -> str | None:
    return f".nerve/artifacts/{context.run_id}" if context.run_id else None
