"""ExecutionContext: what a node sees of the run it is executed in."""

from __future__ import annotations

import copy
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from nerve.core.checks import a_mapping, a_name
from nerve.core.event import Sink, emitted_name, plain_times
from nerve.core.nodes.base import Names, Node, policy_for
from nerve.core.nodes.direct import DirectRuntime, any_id
from nerve.core.nodes.inline import inlined
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, is_final, output_of
from nerve.core.runtime import Call, LeafSide, Runtime, Wait
from nerve.core.values import digest

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(slots=True)
class ExecutionContext:
    """Input, names and the way out: children, waits and events go through here.

    Made by hand it belongs to no run: children are executed in memory, nothing is recorded.
    """

    session: Names | None = None
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
    _made_of: str = field(default="", repr=False)
    _lineage: tuple[str, ...] = field(default=(), repr=False)
    """The workflows that are executed around here without a run, the outermost first."""

    @property
    def runtime(self) -> Runtime:
        """What executes children, waits and events; without a run it works in memory."""
        if self._runtime is None:
            self._runtime = DirectRuntime(self.event_sink, self.workflow_id, self.run_id)
        return self._runtime

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of one step; child processes see it as NERVE_IDEMPOTENCY_KEY."""
        return digest(f"{self._origin()}\n{self.path}")

    def _origin(self) -> str:
        self._made_of = self._made_of or self.run_id or any_id()
        return self._made_of

    def with_input(self, input: Any) -> ExecutionContext:
        """A copy of this context with another input."""
        self._origin()
        other = copy.copy(self)
        other.input = input
        return other

    def inside(self, workflow: str, params: dict[str, Any]) -> ExecutionContext:
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
            self._made_of,
            self._lineage,
        )

    def take(self, name: str) -> str:
        """The path of the next thing of that name in here; taking it is what numbers it."""
        return take(self.path, self._counts, name)

    def take_own(self, name: str) -> str:
        """The path of the next thing in here that nobody has named; no name can be taken for it."""
        count = self._counts[f"~{name}"] = self._counts.get(f"~{name}", 0) + 1
        return numbered(f"{self.path}/~{name}", count)

    def aside(self, name: str) -> str:
        """The path of the next thing of that name beside here: what lies below a leaf is over when it is."""
        count = self._counts[f"~{name}"] = self._counts.get(f"~{name}", 0) + 1
        return numbered(f"{self.path or '/'}~{name}", count)

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
        policy = policy_for(node, policy)
        if not getattr(node, "takes_result", False):
            input = output_of(input)
        made = Call(path or self.take(name), node, node.id or name, input, policy, step, self)
        return recovering(self, made) if policy.on_error else self.enter(made)

    def enter(self, call: Call) -> Awaitable[Result]:
        """Execute a call whose path is fixed already."""
        return inlined(call) if getattr(call.node, "inline", False) else self.runtime.call(call)

    def wait(self, wait: Wait) -> Awaitable[Any]:
        """The value that a gate, a timer or a signal is settled with; TimeoutError when its time is over."""
        return self.runtime.wait(wait)

    def emit(self, event_type: str, data: dict[str, Any] | None = None) -> None:
        """Tell watchers something; safe from the thread of a sync function too.

        Any name is taken. One that only the engine writes, such as `step_completed`, is told as
        `user:step_completed`. Dates and times in the data become ISO 8601 text.
        """
        if not a_name("an event", event_type):
            raise ValueError("the name of an event is empty; emit a name such as 'progress'")
        if data is not None:
            a_mapping(f"data of the event '{event_type}'", data)
        self.runtime.emit(self.path, emitted_name(event_type), event_data(data))

    async def shown(self) -> None:
        """Return when an async sink of a context without a run is done with all that it was told."""
        if isinstance(self._runtime, DirectRuntime):
            await self._runtime.shown()

    @property
    def leaf(self) -> LeafSide:
        """What only a leaf may use: durable notes, questions in the middle, conversations with agents."""
        return cast("LeafSide", self.runtime)

    def now(self) -> datetime:
        """The time in UTC, the same again on replay."""
        return self.runtime.now(self.path)

    def random(self) -> float:
        """A number from 0 to 1, the same again on replay."""
        return self.runtime.random(self.take_own("random"))

    def new_id(self) -> str:
        """A UUID as text, the same again on replay."""
        return self.runtime.new_id(self.take_own("id"))


def event_data(data: dict[str, Any] | None) -> dict[str, Any]:
    try:
        made: dict[str, Any] = plain_times(data or {})
        return made
    except RecursionError:
        return dict(data or {})  # which is refused where it is written


def take(parent: str, counts: dict[str, int], name: str) -> str:
    """The path of the next `name` below `parent`: `/name`, then `/name[2]`, `/name[3]` …"""
    count = counts[name] = counts.get(name, 0) + 1
    return numbered(f"{parent}/{escape(name)}", count)


def numbered(path: str, count: int) -> str:
    """The path of the second, third … of one name."""
    return path if count == 1 else f"{path}[{count}]"


@lru_cache(10_000)
def escape(name: str) -> str:
    """A name that cannot be taken for a path of its own, or for what stands beside a path."""
    if "/" in name or "[" in name or "%" in name or "~" in name:
        return name.replace("%", "%25").replace("/", "%2F").replace("[", "%5B").replace("~", "%7E")
    return name


async def recovering(context: ExecutionContext, call: Call) -> Result:
    """A call whose failure is skipped, or handed to a fallback node."""
    return await recovered(context, await context.enter(call), call)


async def recovered(context: ExecutionContext, result: Result, call: Call) -> Result:
    """How a call ended, or what its policy says to take instead of a failure."""
    instead = call.policy.instead_of(result)
    if result.success or instead is None or instead == "fail" or is_final(result):
        return result
    if instead == "skip":
        return Result.ok(None, {"skipped": result.error, "error_type": result.error_type})
    return await context.call(instead, call.input, path=f"{call.path or '/'}[fallback]")
