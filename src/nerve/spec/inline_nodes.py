"""Nodes that only specs use: scoped steps, sequences and computed values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.attempt import is_same_or_below
from nerve.core.nodes.base import ControlNode, Node, NodeRegistry, effective_policy
from nerve.core.nodes.context import ExecutionContext, apply_fallback
from nerve.core.nodes.control.workspace_node import OnConflict, WorkspaceScope
from nerve.core.nodes.graph import Graph
from nerve.core.nodes.workspace import WorkspaceSettings
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, result_output
from nerve.core.runtime import NodeCall
from nerve.lazy_dataclass import dataclass
from nerve.spec import models
from nerve.spec.scope import Scope, ScopeView
from nerve.spec.template_values import is_condition_true


@dataclass(slots=True)
class PreparedCall:
    """A node to execute with its input, parameters, policy, and a mapping of its result."""

    node: Node
    input: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    map_result: Callable[[Result], Result] | None = None
    policy: Policy = NO_POLICY
    """The policy of the node itself, independent of its wrappers."""
    cwd: str | None = None
    """The directory of the node, relative to the folder that the step works in."""
    is_cwd_confined: bool = False
    """Whether `cwd` must be inside that folder."""
    shares_files: bool = False
    """Whether its agents may edit the same files as others at the same time."""

    async def execute(
        self,
        context: ExecutionContext,
        path: str,
        own_policy: Policy = NO_POLICY,
        note_failure: Callable[[Result], None] | None = None,
    ) -> Result:
        """Execute the node at a path and return its mapped result.

        `note_failure` receives a failure before its handler runs, because the handler may read it.
        """
        policy = effective_policy(self.node, own_policy.with_defaults(self.policy))
        name = self.node.id or path.rpartition("/")[2].partition("[")[0] or "step"
        inner = context.sharing_files() if self.shares_files else context
        if self.cwd is not None:
            inner = inner.in_directory(self.cwd, is_confined=self.is_cwd_confined)
        call = NodeCall(path, self.node, name, self.input, policy, False, inner, self.params)
        result = await context.execute_call(call)
        if not result.success and policy.fallback_for(result):
            if note_failure is not None:
                note_failure(result)
            result = await apply_fallback(context, result, call)
        return self.map_result(result) if self.map_result else result


class InlineNode(ControlNode):
    """A control node of a spec: part of the workflow body, so replay evaluates it again."""

    inline = True


class ScopedStep(InlineNode):
    """A node of a spec: skips or executes it, and records the result under its id."""

    def __init__(
        self,
        name: str,
        scope: Scope,
        prepare: Callable[[ScopeView], PreparedCall],
        *,
        when: str | None = None,
        policy: Policy | None = None,
        result_id: str | None = None,
        workspace_kind: str | None = None,
    ) -> None:
        super().__init__(name)
        self.workspace_kind = workspace_kind
        self.scope, self.prepare, self.when, self.result_id = scope, prepare, when, result_id
        self.own_policy = policy or Policy()

    async def execute(self, context: ExecutionContext) -> Result:
        view = self.scope.view(given=node_input(context.input))
        try:
            should_run = self._should_run(view)
            result = await self._perform(context, view) if should_run else self._skip(context, view)
        except Exception as error:
            self.scope.record(self.result_id, Result.from_exception(error))
            raise
        self.scope.record(self.result_id, result)
        return result

    def _should_run(self, view: ScopeView) -> bool:
        return self.when is None or is_condition_true(self.when, view)

    def _skip(self, context: ExecutionContext, view: ScopeView) -> Result:
        context.emit(
            WorkflowEventType.SKIPPED, {"step_id": self.id, "path": context.path, "because": self.when}
        )
        return Result.ok(view["given"], {"skipped": self.when})

    async def _perform(self, context: ExecutionContext, view: ScopeView) -> Result:
        prepared = self.prepare(view)
        inline = getattr(prepared.node, "inline", False)
        path = context.path if context.path or inline else context.next_path(self.id or "step")
        return await prepared.execute(
            context, path, self.own_policy, lambda failed: self.scope.record(self.result_id, failed)
        )


class SequenceNode(InlineNode):
    """Execute steps in order, each with the previous output; a failure or a goto ends the sequence."""

    def __init__(
        self,
        name: str,
        scope: Scope,
        steps: Iterable[ScopedStep],
        aside_indexes: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(name)
        self.scope, self.steps = scope, list(steps)
        self.aside_indexes = aside_indexes
        """The steps that only test: the next step gets the same input as they do."""

    def parts(self) -> Iterable[Node]:
        return self.steps

    async def execute(self, context: ExecutionContext) -> Result:
        result, step_input = Result.ok(result_output(context.input)), context.input
        for n, step in enumerate(self.steps):
            result = await context.call(step, step_input)
            if n not in self.aside_indexes:
                step_input = result
            if not result.success or self.scope.pending_goto.is_leaving:
                break
        return result


class ScopedGraph(Graph):
    """A graph whose skipped steps are visible to expressions."""

    def __init__(self, name: str, session: NodeRegistry, scope: Scope) -> None:
        super().__init__(name, session)
        self.scope = scope

    def on_skip(self, step_id: str, result: Result) -> None:
        self.scope.record(step_id, result)


class ComputeNode(InlineNode):
    """A node that computes its output."""

    def __init__(self, name: str, compute: Callable[[ExecutionContext], Any]) -> None:
        super().__init__(name)
        self.compute = compute

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(self.compute(context))


class WrappedNode(InlineNode):
    """A node with an action before each execution and a mapping of its result.

    A policy sees only the mapped result.
    """

    def __init__(
        self,
        node: Node,
        map_result: Callable[[Result], Result] | None = None,
        set_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(node.id)
        self.node, self.map_result, self.set_up = node, map_result, set_up
        self.workspace_kind: str | None = getattr(node, "workspace_kind", None)

    async def execute(self, context: ExecutionContext) -> Result:
        self.set_up()
        result = await self.node.execute(context)
        return self.map_result(result) if self.map_result else result


class MapItemBody(InlineNode):
    """The body of a map, with a separate scope for each item."""

    def __init__(
        self, name: str, scope: Scope, build: Callable[[Scope], ScopedStep], workspace_kind: str | None = None
    ) -> None:
        super().__init__(name)
        self.scope, self.build, self.workspace_kind = scope, build, workspace_kind

    async def execute(self, context: ExecutionContext) -> Result:
        pair = context.input
        scope = self.scope.for_map_item(pair["item"], pair["index"])
        return await join_detached_prompts(scope, self.build(scope).execute(context.with_input(pair["item"])))


class Iteration(InlineNode):
    """The body of a loop; expressions read the iteration count as `iteration`."""

    def __init__(self, name: str, scope: Scope, body: ScopedStep) -> None:
        super().__init__(name)
        self.scope, self.body = scope, body
        self.count = 0

    def reset(self) -> None:
        """Count from 0 again, before another execution of the loop."""
        self.count = 0

    async def execute(self, context: ExecutionContext) -> Result:
        self.scope.local_values["iteration"] = self.count
        self.count += 1
        return await self.body.execute(context)


class StateBody(InlineNode):
    """The body of a state; detached prompts are joined before the state ends."""

    def __init__(self, name: str, scope: Scope, body: ScopedStep | None) -> None:
        super().__init__(name)
        self.scope, self.body = scope, body

    async def execute(self, context: ExecutionContext) -> Result:
        if self.body is None:
            return Result.ok(result_output(context.input))
        return await join_detached_prompts(self.scope, self.body.execute(context))


class WithTimeout(InlineNode):
    """A node with a timeout that cancels the detached prompts sent inside the node."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.id)
        self.node, self.scope = node, scope

    async def execute(self, context: ExecutionContext) -> Result:
        try:
            result = await self.node.execute(context)
        except asyncio.CancelledError:
            pending_items = self.scope.pending_prompts.items()
            await cancel_detached_prompts(
                self.scope,
                [
                    tag
                    for tag, pending_prompt in pending_items
                    if is_same_or_below(pending_prompt.path, context.path)
                ],
            )
            raise
        # The timeout of a child is not the timeout of this node, so it counts as an ordinary failure here.
        return Result(result) if result.settlement == "timeout" else result


class StepInWorkspace(InlineNode):
    """A node in a workspace of its own; see `WorkspaceScope`."""

    def __init__(
        self,
        name: str,
        body: Node,
        settings: WorkspaceSettings,
        on_conflict: OnConflict,
        artifacts: str,
        is_run: bool = False,
    ) -> None:
        super().__init__(name)
        self.body, self.settings, self.on_conflict = body, settings, on_conflict
        self.artifacts, self.is_run = artifacts, is_run
        """Whether the workspace is that of the run, whose steps have paths below the root."""

    def parts(self) -> Iterable[Node]:
        return [self.body]

    async def execute(self, context: ExecutionContext) -> Result:
        path = context.path or ("" if self.is_run else context.next_path(self.id or "step"))
        scope = WorkspaceScope(self.settings, self.on_conflict, f"{path or '/'}~", self.artifacts, path)

        async def run_body(inner: ExecutionContext) -> Result:
            call = NodeCall(path, self.body, self.id or "step", context.input, context=inner)
            return await inner.execute_call(call)

        return await scope.execute(context, run_body)


async def join_detached_prompts(scope: Scope, body: Awaitable[Result]) -> Result:
    """Return the result of a body after its detached prompts; an unobserved failure of a prompt counts.

    A prompt is cancelled if a wait for it timed out and no later wait received its answer.
    """
    try:
        result = await body
        await cancel_detached_prompts(
            scope, [tag for tag, pending_prompt in scope.pending_prompts.items() if pending_prompt.is_overdue]
        )
        failures = [
            failure
            for tag in list(scope.pending_prompts)
            if (failure := await join_detached_prompt(scope, tag))
        ]
    except asyncio.CancelledError:
        await cancel_detached_prompts(scope, list(scope.pending_prompts))
        raise
    return failures[0] if failures and result.success else result


async def join_detached_prompt(scope: Scope, tag: str) -> Result | None:
    """Wait for a detached prompt; return its failure if no wait has received it."""
    result = await scope.pending_prompts[tag].task
    del scope.pending_prompts[tag]
    was_awaited = tag in scope.awaited_tags
    scope.awaited_tags.discard(tag)
    return None if was_awaited or result.success else result


async def cancel_detached_prompts(scope: Scope, tags: Iterable[str]) -> None:
    """Cancel the prompts with these tags, and return when they have ended."""
    tasks = [scope.pending_prompts.pop(tag).task for tag in tags]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def limits_policy(spec: models.CallSpec | models.PromptSpec | models.WorkflowCallSpec) -> Policy:
    """Return the policy with the limits of a step."""
    return NO_POLICY if spec.limits is None else Policy.of(limits=spec.limits.model_dump(exclude_none=True))


def sibling_path(path: str, name: str, count: int = 1) -> str:
    """Return a path next to that of a leaf: paths below a leaf end together with the leaf."""
    return f"{path}~{name}" if count == 1 else f"{path}~{name}[{count}]"


def node_input(value: Any) -> Any:
    """Return the input of a node: the output of the previous node, or the outputs of several."""
    if isinstance(value, Result):
        return value.output
    if type(value) is dict and value and all(isinstance(item, Result) for item in value.values()):
        return {name: item.output for name, item in value.items()}
    return value
