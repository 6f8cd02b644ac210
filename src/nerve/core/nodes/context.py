"""ExecutionContext: the interface of a run for the node that is executed."""

from __future__ import annotations

import copy
import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import field, fields, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nerve.core.events import Sink, emitted_event_name, times_to_iso
from nerve.core.json_codec import short_sha256
from nerve.core.nodes.base import Node, NodeRegistry, effective_policy
from nerve.core.nodes.in_memory_runtime import InMemoryRuntime, RuntimeOrigin, current_home, random_uuid
from nerve.core.nodes.inline import run_inline
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, is_final_rejection, result_output
from nerve.core.runtime import LeafServices, NodeCall, Runtime, Wait
from nerve.core.safe_path import resolve_inside
from nerve.core.validation import require_mapping, require_name
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from datetime import datetime

    from nerve.core.nodes.active_workspace import ActiveWorkspace
    from nerve.core.nodes.workspace import ParallelBase


@dataclass(slots=True)
class ExecutionContext:
    """The input of a node, and its access to children, waits and events.

    A context that user code creates does not belong to a run: it executes children in memory, and records
    nothing.
    """

    session: NodeRegistry | None = None
    input: Any = None
    event_sink: Sink | None = None
    workflow_id: str = ""
    run_id: str = ""
    auto_approve: bool = False
    """Whether gates are answered automatically."""
    path: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings of the node that a fork changed."""
    params: dict[str, Any] = field(default_factory=dict)
    """The parameters of the run."""
    folder: str | None = None
    """The folder of the node, relative to the project: the `cwd` of a step; None is the project itself."""
    workspace: ActiveWorkspace | None = None
    """The workspace that the node works in; its steps record their files."""
    shares_files: bool = False
    """Whether agents may edit the same files at the same time, because someone has said so."""
    workspaces: dict[str, ActiveWorkspace] = field(default_factory=dict, repr=False)
    """The workspaces of the run that it has not removed, by name."""
    base: ParallelBase | None = field(default=None, repr=False)
    """The files that the workspaces of its children start from; None for the present ones."""
    _runtime: Runtime | None = field(default=None, repr=False)
    _counts: dict[str, int] = field(default_factory=dict, repr=False)
    _origin_id: str = field(default="", repr=False)
    _lineage: tuple[str, ...] = field(default=(), repr=False)
    """The enclosing workflows that are executed without a run, outermost first."""
    _rejection: str = field(default="", repr=False)
    """Why code that only reads may not use the context now; "" if it may."""

    @property
    def runtime(self) -> Runtime:
        """Executes children, waits and events; in memory without a run."""
        if self._runtime is None:
            origin = RuntimeOrigin(self.event_sink, self.workflow_id, self.run_id, current_home())
            self._runtime = InMemoryRuntime(origin)
        return self._runtime

    @property
    def idempotency_key(self) -> str:
        """A key shared by all attempts of one step; child processes get it as NERVE_IDEMPOTENCY_KEY."""
        return short_sha256(f"{self._get_origin_id()}\n{self.path}")

    def _get_origin_id(self) -> str:
        self._origin_id = self._origin_id or self.run_id or random_uuid()
        return self._origin_id

    def __copy__(self) -> ExecutionContext:
        return ExecutionContext(*read_fields(self))

    def with_input(self, input: Any) -> ExecutionContext:
        """Return a copy of this context with another input."""
        self._get_origin_id()
        other = copy.copy(self)
        other.input = input
        return other

    def in_workflow(self, workflow: str, params: dict[str, Any]) -> ExecutionContext:
        """Return the context for a workflow that is executed inside this one, without its own run."""
        return replace(self, params=params, _runtime=self.runtime, _lineage=(*self._lineage, workflow))

    def child(self, path: str, input: Any, runtime: Runtime | None = None) -> ExecutionContext:
        """Return the context for a node at `path`, which numbers its own children."""
        return ExecutionContext(
            self.session,
            input,
            self.event_sink,
            self.workflow_id,
            self.run_id,
            self.auto_approve,
            path,
            self.overrides,
            self.params,
            self.folder,
            self.workspace,
            self.shares_files,
            self.workspaces,
            self.base,
            runtime or self.runtime,  # children of a context without a run share its runtime
            {},
            self._origin_id,
            self._lineage,
        )

    def resolve_directory(
        self, directory: str | os.PathLike[str] | None, *, is_confined: bool = False
    ) -> Path | None:
        """Return the directory of a node on this machine: in its folder, or relative to the project.

        A directory inside the project becomes the same one inside the folder. None is the current directory.
        """
        project = self.session.project if self.session is not None else Path()
        if self.folder is None:
            return None if directory is None else project / directory
        is_relative = not os.path.isabs(self.folder)
        root = resolve_inside(project, self.folder) if is_relative else Path(self.folder)
        path = Path(directory or "")
        if path.is_absolute() and is_inside(project, path):
            path = Path(os.path.relpath(path, os.path.abspath(project)))
        return resolve_inside(root, path) if is_confined else root / path

    def relative_directory(self, directory: str | None) -> str:
        """Return the directory of a node relative to the project, by names alone: no machine matters."""
        path = directory or ""
        if self.session is not None and os.path.isabs(path) and is_inside(self.session.project, path):
            path = os.path.relpath(path, os.path.abspath(self.session.project))
        return os.path.normpath(os.path.join(self.folder or "", path))

    def in_workspace(self, workspace: ActiveWorkspace, folder: str) -> ExecutionContext:
        """Return this context in a workspace with this folder; the children share its numbering."""
        self._get_origin_id()
        other = copy.copy(self)
        other.workspace, other.folder, other.shares_files, other.base = workspace, folder, False, None
        return other

    def sharing_files(self) -> ExecutionContext:
        """Return this context for steps that may edit the same files; the children share its numbering."""
        self._get_origin_id()
        other = copy.copy(self)
        other.shares_files = True
        return other

    def in_directory(self, directory: str, *, is_confined: bool) -> ExecutionContext:
        """Return this context with another folder; the children share its numbering.

        A confined directory must be inside the current folder; ValueError if it is not.
        """
        path = os.path.normpath(os.path.join(self.folder or "", directory))
        outer = os.path.normpath(self.folder or ".")
        if is_confined and (os.path.isabs(directory) or not is_inside(outer, path)):
            raise ValueError(f"{directory!r} is outside of {self.folder or 'the project'}")
        other = copy.copy(self)
        if not is_inside(".", path) and self.session is not None:
            path = os.path.abspath(self.session.project / path)  # another machine does not have it
        other.folder = path
        return other

    def next_path(self, name: str) -> str:
        """Return the path of the next child of this name. Each call increments the index."""
        if self._rejection:
            raise RuntimeError(self._rejection)
        return next_child_path(self.path, self._counts, name)

    def next_internal_path(self, name: str) -> str:
        """Return the path of the next internal child; it cannot collide with the names of users."""
        if self._rejection:
            raise RuntimeError(self._rejection)
        count = self._counts[f"~{name}"] = self._counts.get(f"~{name}", 0) + 1
        return numbered_path(f"{self.path}/~{name}", count)

    def next_sibling_path(self, name: str) -> str:
        """Return the path of the next internal sibling; paths below a leaf are settled with the leaf."""
        count = self._counts[f"~{name}"] = self._counts.get(f"~{name}", 0) + 1
        return numbered_path(f"{self.path or '/'}~{name}", count)

    def call(
        self,
        node: Node,
        input: Any,
        *,
        id: str | None = None,
        path: str | None = None,
        policy: Policy = NO_POLICY,
        step: bool = False,
    ) -> Awaitable[Result]:
        """Execute a child node. Its path is assigned now, not when the result is awaited."""
        name = id or node.id or type(node).__name__
        policy = effective_policy(node, policy)
        if not getattr(node, "takes_result", False):
            input = result_output(input)
        node_call = NodeCall(path or self.next_path(name), node, node.id or name, input, policy, step, self)
        return call_with_fallback(self, node_call) if policy.on_error else self.execute_call(node_call)

    def execute_call(self, call: NodeCall) -> Awaitable[Result]:
        """Execute a call that already has a path."""
        return run_inline(call) if getattr(call.node, "inline", False) else self.runtime.call(call)

    def wait(self, wait: Wait) -> Awaitable[Any]:
        """Return the value that settles a gate, a timer or a signal; TimeoutError when it times out."""
        return self.runtime.wait(wait)

    def emit(self, event_type: str, data: dict[str, Any] | None = None) -> None:
        """Emit an event to subscribers; also safe in the thread of a sync function.

        Any name is accepted. A name reserved for the engine, such as `step_completed`, is recorded as
        `user:step_completed`. Dates and times in the data become ISO 8601 strings.
        """
        if self._rejection:
            raise RuntimeError(self._rejection)
        if not require_name("an event", event_type):
            raise ValueError("The name of an event must not be empty; use a name such as 'progress'")
        if data is not None:
            require_mapping(f"data of the event '{event_type}'", data)
        self.runtime.emit(self.path, emitted_event_name(event_type), plain_event_data(data))

    @contextmanager
    def reject_requests(self, reason: str) -> Iterator[None]:
        """Raise RuntimeError in the block if it requests anything; such a request is not in the journal."""
        self._rejection = reason
        try:
            yield
        finally:
            self._rejection = ""

    async def flush_sinks(self) -> None:
        """Return when an async sink of a context without a run has processed all events."""
        if isinstance(self._runtime, InMemoryRuntime):
            await self._runtime.flush_sinks()

    @property
    def leaf_runtime(self) -> LeafServices:
        """Services for leaves only: durable events, gates inside a leaf, agent threads."""
        return cast("LeafServices", self.runtime)

    def now(self) -> datetime:
        """Return the time in UTC, the same on replay."""
        if self._rejection:
            raise RuntimeError(self._rejection)
        return self.runtime.now(self.path)

    def random(self) -> float:
        """Return a random number from 0 to 1, the same on replay."""
        return self.runtime.random(self.next_internal_path("random"))

    def new_id(self) -> str:
        """Return a UUID string, the same on replay."""
        return self.runtime.new_id(self.next_internal_path("id"))


read_fields = attrgetter(*(each.name for each in fields(ExecutionContext)))
"""Read all values of a context, in the order in which `__init__` takes them."""


def is_inside(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a directory or below it, by their names alone."""
    base, other = os.path.abspath(root), os.path.abspath(path)
    return os.path.commonpath([base, other]) == base


def plain_event_data(data: dict[str, Any] | None) -> dict[str, Any]:
    try:
        plain_data: dict[str, Any] = times_to_iso(data or {})
        return plain_data
    except RecursionError:
        return dict(data or {})  # the journal rejects such data when it is written


def next_child_path(parent: str, counts: dict[str, int], name: str) -> str:
    """Return the path of the next `name` below `parent`: `/name`, then `/name[2]`, `/name[3]` …"""
    counts[name] = count = counts.get(name, 0) + 1
    number = "" if count == 1 else f"[{count}]"
    return f"{parent}/{escape_path_part(name)}{number}"


def numbered_path(path: str, count: int) -> str:
    """Return the path with its index, which the first of a name does not have."""
    return path if count == 1 else f"{path}[{count}]"


@lru_cache(10_000)
def escape_path_part(name: str) -> str:
    """Return a name with the characters escaped that have a meaning in paths."""
    if "/" in name or "[" in name or "%" in name or "~" in name:
        return name.replace("%", "%25").replace("/", "%2F").replace("[", "%5B").replace("~", "%7E")
    return name


async def call_with_fallback(context: ExecutionContext, call: NodeCall) -> Result:
    """Execute a call; skip its failure, or execute the fallback node, as its policy says."""
    return await apply_fallback(context, await context.execute_call(call), call)


async def apply_fallback(context: ExecutionContext, result: Result, call: NodeCall) -> Result:
    """Return the result of a call, or of the fallback that its policy sets for a failure."""
    fallback = call.policy.fallback_for(result)
    if result.success or fallback is None or fallback == "fail" or is_final_rejection(result):
        return result
    if fallback == "skip":
        return Result.ok(None, {"skipped": result.error, "error_type": result.error_type})
    return await context.call(fallback, call.input, path=f"{call.path or '/'}[fallback]")
