"""ExecutionContext: what a node sees of the run it is executed in."""

from __future__ import annotations

import copy
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from nerve.core.events import Sink, emitted_event_name, times_to_iso
from nerve.core.json_codec import short_sha256
from nerve.core.nodes.base import Node, NodeRegistry, effective_policy
from nerve.core.nodes.in_memory_runtime import InMemoryRuntime, random_uuid
from nerve.core.nodes.inline import run_inline
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, is_final_rejection, result_output
from nerve.core.runtime import LeafServices, NodeCall, Runtime, Wait
from nerve.core.validation import require_mapping, require_name

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(slots=True)
class ExecutionContext:
    """Input, names and the way out: children, waits and events go through here.

    Made by hand it belongs to no run: children are executed in memory, nothing is recorded.
    """

    session: NodeRegistry | None = None
    input: Any = None
    event_sink: Sink | None = None
    workflow_id: str = ""
    run_id: str = ""
    auto_approve: bool = False
    """Whether gates answer themselves."""
    path: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings of the node that a fork has changed."""
    params: dict[str, Any] = field(default_factory=dict)
    """The parameters that the run was started with."""
    _runtime: Runtime | None = field(default=None, repr=False)
    _counts: dict[str, int] = field(default_factory=dict, repr=False)
    _origin_id: str = field(default="", repr=False)
    _lineage: tuple[str, ...] = field(default=(), repr=False)
    """The workflows that are executed around here without a run, the outermost first."""

    @property
    def runtime(self) -> Runtime:
        """What executes children, waits and events; without a run it works in memory."""
        if self._runtime is None:
            self._runtime = InMemoryRuntime(self.event_sink, self.workflow_id, self.run_id)
        return self._runtime

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of one step; child processes see it as NERVE_IDEMPOTENCY_KEY."""
        return short_sha256(f"{self._get_origin_id()}\n{self.path}")

    def _get_origin_id(self) -> str:
        self._origin_id = self._origin_id or self.run_id or random_uuid()
        return self._origin_id

    def with_input(self, input: Any) -> ExecutionContext:
        """A copy of this context with another input."""
        self._get_origin_id()
        other = copy.copy(self)
        other.input = input
        return other

    def in_workflow(self, workflow: str, params: dict[str, Any]) -> ExecutionContext:
        """The same context, inside of a workflow that is executed without a run of its own."""
        return replace(self, params=params, _runtime=self.runtime, _lineage=(*self._lineage, workflow))

    def child(self, path: str, input: Any, runtime: Runtime | None = None) -> ExecutionContext:
        """The context of a node entered at `path`, which counts its own children."""
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
            runtime or self.runtime,  # children of a context without a run share its runtime
            {},
            self._origin_id,
            self._lineage,
        )

    def next_path(self, name: str) -> str:
        """The path of the next thing of that name in here; taking it is what numbers it."""
        return next_child_path(self.path, self._counts, name)

    def next_internal_path(self, name: str) -> str:
        """The path of the next thing in here that nobody has named; no name can be taken for it."""
        count = self._counts[f"~{name}"] = self._counts.get(f"~{name}", 0) + 1
        return numbered_path(f"{self.path}/~{name}", count)

    def next_sibling_path(self, name: str) -> str:
        """The path of the next thing of that name beside here: what lies below a leaf is over when it is."""
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
        """Execute a child node. The path is fixed now, not when the result is awaited."""
        name = id or node.id or type(node).__name__
        policy = effective_policy(node, policy)
        if not getattr(node, "takes_result", False):
            input = result_output(input)
        node_call = NodeCall(path or self.next_path(name), node, node.id or name, input, policy, step, self)
        return call_with_fallback(self, node_call) if policy.on_error else self.execute_call(node_call)

    def execute_call(self, call: NodeCall) -> Awaitable[Result]:
        """Execute a call whose path is fixed already."""
        return run_inline(call) if getattr(call.node, "inline", False) else self.runtime.call(call)

    def wait(self, wait: Wait) -> Awaitable[Any]:
        """The value that a gate, a timer or a signal is settled with; TimeoutError when its time is over."""
        return self.runtime.wait(wait)

    def emit(self, event_type: str, data: dict[str, Any] | None = None) -> None:
        """Tell watchers something; safe from the thread of a sync function too.

        Any name is taken. One that only the engine writes, such as `step_completed`, is told as
        `user:step_completed`. Dates and times in the data become ISO 8601 text.
        """
        if not require_name("an event", event_type):
            raise ValueError("the name of an event is empty; emit a name such as 'progress'")
        if data is not None:
            require_mapping(f"data of the event '{event_type}'", data)
        self.runtime.emit(self.path, emitted_event_name(event_type), plain_event_data(data))

    async def flush_sinks(self) -> None:
        """Return when an async sink of a context without a run is done with all that it was told."""
        if isinstance(self._runtime, InMemoryRuntime):
            await self._runtime.flush_sinks()

    @property
    def leaf_runtime(self) -> LeafServices:
        """What only a leaf may use: durable notes, questions in the middle, conversations with agents."""
        return cast("LeafServices", self.runtime)

    def now(self) -> datetime:
        """The time in UTC, the same again on replay."""
        return self.runtime.now(self.path)

    def random(self) -> float:
        """A number from 0 to 1, the same again on replay."""
        return self.runtime.random(self.next_internal_path("random"))

    def new_id(self) -> str:
        """A UUID as text, the same again on replay."""
        return self.runtime.new_id(self.next_internal_path("id"))


def plain_event_data(data: dict[str, Any] | None) -> dict[str, Any]:
    try:
        plain_data: dict[str, Any] = times_to_iso(data or {})
        return plain_data
    except RecursionError:
        return dict(data or {})  # which is refused where it is written


def next_child_path(parent: str, counts: dict[str, int], name: str) -> str:
    """The path of the next `name` below `parent`: `/name`, then `/name[2]`, `/name[3]` …"""
    count = counts[name] = counts.get(name, 0) + 1
    return numbered_path(f"{parent}/{escape_path_part(name)}", count)


def numbered_path(path: str, count: int) -> str:
    """The path of the second, third … of one name."""
    return path if count == 1 else f"{path}[{count}]"


@lru_cache(10_000)
def escape_path_part(name: str) -> str:
    """A name that cannot be taken for a path of its own, or for what stands beside a path."""
    if "/" in name or "[" in name or "%" in name or "~" in name:
        return name.replace("%", "%25").replace("/", "%2F").replace("[", "%5B").replace("~", "%7E")
    return name


async def call_with_fallback(context: ExecutionContext, call: NodeCall) -> Result:
    """A call whose failure is skipped, or handed to a fallback node."""
    return await apply_fallback(context, await context.execute_call(call), call)


async def apply_fallback(context: ExecutionContext, result: Result, call: NodeCall) -> Result:
    """How a call ended, or what its policy says to take instead of a failure."""
    instead = call.policy.fallback_for(result)
    if result.success or instead is None or instead == "fail" or is_final_rejection(result):
        return result
    if instead == "skip":
        return Result.ok(None, {"skipped": result.error, "error_type": result.error_type})
    return await context.call(instead, call.input, path=f"{call.path or '/'}[fallback]")
