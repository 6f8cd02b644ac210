"""Blocks of a workflow function whose steps work in a checkout of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from nerve.core.nodes.active_workspace import ActiveWorkspace
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.workspace_node import OnConflict, WorkspaceScope, default_artifacts
from nerve.core.nodes.workspace import MergeMethod, WorkspaceSettings, read_files
from nerve.core.result import Result
from nerve.core.runtime import GateWait
from nerve.errors import NodeFailed

FRESH_PLACE = "fresh"
"""The place of a run that works in a worktree of its own."""


class SharedFiles:
    """The files around a block whose agents may edit them at the same time."""

    def __init__(self, around: ActiveWorkspace | SharedFiles | None) -> None:
        self._around = around

    def enter(self, context: ExecutionContext) -> ExecutionContext:
        inner = context if self._around is None else enter_block(self._around, context)
        return inner.sharing_files()


CURRENT_WORKSPACE: ContextVar[ActiveWorkspace | SharedFiles | None] = ContextVar(
    "nerve_workspace", default=None
)
"""The workspace of the block that the current task is in."""


class WorkspaceHandle:
    """The workspace of a block."""

    def __init__(self, scope: WorkspaceScope, active: ActiveWorkspace, execution: ExecutionContext) -> None:
        self._scope, self._active, self._execution = scope, active, execution
        self._merge_count = 0

    @property
    def name(self) -> str:
        """The name of the workspace, as `nerve workspaces` shows it."""
        return self._active.name

    @property
    def branch(self) -> str:
        """The branch that its commits are on."""
        branch: str = self._active.output["branch"]
        return branch

    @property
    def folder(self) -> str:
        """Its folder in place of the project, relative to the project."""
        return self._active.folder

    async def merge(self, method: MergeMethod = "files") -> dict[str, Any]:
        """Merge the work so far, and return `status`, `files`, `commit` and `diff`."""
        self._merge_count += 1
        inner = self._active.enter(self._execution)
        merged = raise_on_failure(await self._scope.merge(inner, method, f"-{self._merge_count}"), self.name)
        output: dict[str, Any] = merged.output
        return output


@asynccontextmanager
async def workspace_block(
    execution: ExecutionContext, settings: WorkspaceSettings, on_conflict: OnConflict
) -> AsyncIterator[WorkspaceHandle]:
    """Create a workspace, run the block in it, and merge and remove it."""
    path = execution.next_path("workspace")
    scope = WorkspaceScope(settings, on_conflict, f"{path}~", default_artifacts(execution), path)
    raise_on_failure(await scope.open(execution), path)
    assert scope.active is not None
    inner = scope.active.enter(execution)
    raise_on_failure(await scope.set_up(inner), path)
    with current_workspace(scope.active):
        yield WorkspaceHandle(scope, scope.active, execution)
    raise_on_failure(await scope.end(inner), path)


@asynccontextmanager
async def shared_block() -> AsyncIterator[None]:
    """Run the block in the files around it; its agents may edit them at the same time."""
    with current_workspace(SharedFiles(CURRENT_WORKSPACE.get())):
        yield


def enter_block(block: ActiveWorkspace | SharedFiles, context: ExecutionContext) -> ExecutionContext:
    """Return the context of a run inside a block of its body.

    A run that was called in a block has the variable of its caller, and works in that workspace already.
    """
    is_of_caller = isinstance(block, ActiveWorkspace) and block.run_id != context.run_id
    return context if is_of_caller else block.enter(context)


@contextmanager
def current_workspace(workspace: ActiveWorkspace | SharedFiles) -> Iterator[None]:
    token = CURRENT_WORKSPACE.set(workspace)
    try:
        yield
    finally:
        CURRENT_WORKSPACE.reset(token)


async def run_in_worktree(execution: ExecutionContext, run_body: Callable[[], Awaitable[Any]]) -> Any:
    """Run the body of a run in a worktree of its own, which stays if it has work that is not merged.

    The context of the run then works there; a later run of a chain gets one that does already.
    """
    scope = WorkspaceScope(
        WorkspaceSettings(base="HEAD", merge="none"), "ask", "/~", default_artifacts(execution), ""
    )
    if execution.workspace is None:
        raise_on_failure(await scope.open(execution), "/~workspace")
        assert scope.active is not None
        inner = scope.active.enter(execution)
        # In place: the handlers of messages have the same context.
        execution.workspace, execution.folder = inner.workspace, inner.folder
    scope.active = execution.workspace
    value = await run_body()
    raise_on_failure(await scope.end(execution), "/~close")
    return value


def raise_on_failure(result: Result, path: str) -> Result:
    if not result.success:
        raise NodeFailed(path, result.error_type, result.error)
    return result


async def ask_about_files(execution: ExecutionContext, gate: GateWait) -> Any:
    """Return the answer of a gate; in a workspace, it is about the files that were shown."""
    if execution.workspace is None:
        return await execution.wait(gate)
    number, note = 0, gate.note
    while True:
        number += 1
        suffix = "" if number == 1 else f"[{number}]"
        files = await read_files(execution, f"{gate.path}~files{suffix}")
        shown = replace(gate, input_preview=files["diff"] if files else None, note=note)
        answer = await execution.wait(
            replace(shown, path=f"{gate.path}~again{suffix}" if suffix else gate.path)
        )
        now = await read_files(execution, f"{gate.path}~answered{suffix}")
        if files is None or now is None or files["tree"] == now["tree"]:
            execution.workspace.evidence.note_approval(files)
            return answer
        note = f"'{answer}' was for other files: they have changed since the question was asked"
