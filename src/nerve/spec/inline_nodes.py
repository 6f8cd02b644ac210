"""The nodes that only a spec needs: steps in a scope, sequences, and what is computed rather than called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.nodes.attempt import is_same_or_below
from nerve.core.nodes.base import ControlNode, Node, effective_policy
from nerve.core.nodes.context import ExecutionContext, apply_fallback
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, result_output
from nerve.core.runtime import NodeCall
from nerve.spec import models
from nerve.spec.scope import Scope, ScopeView
from nerve.spec.template_values import is_condition_true


@dataclass(slots=True)
class PreparedCall:
    """A node to be entered, its input, for a workflow its parameters, and what is made of its result."""

    node: Node
    input: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    map_result: Callable[[Result], Result] | None = None
    policy: Policy = NO_POLICY
    """What is said of the node itself, whatever is wrapped around it."""

    async def execute(
        self,
        context: ExecutionContext,
        path: str,
        own_policy: Policy = NO_POLICY,
        note_failure: Callable[[Result], None] | None = None,
    ) -> Result:
        """Execute it at a path, and give what is made of its result.

        `note_failure` is given a failure before its handler is executed, which may want to see it.
        """
        policy = effective_policy(self.node, own_policy.with_defaults(self.policy))
        name = self.node.id or path.rpartition("/")[2].partition("[")[0] or "step"
        call = NodeCall(path, self.node, name, self.input, policy, False, context, self.params)
        result = await context.execute_call(call)
        if not result.success and policy.fallback_for(result):
            if note_failure is not None:
                note_failure(result)
            result = await apply_fallback(context, result, call)
        return self.map_result(result) if self.map_result else result


class InlineNode(ControlNode):
    """A control node of a spec: part of the body, decided again on replay."""

    inline = True


class ScopedStep(InlineNode):
    """A node of a spec at its place: skipped or entered with what it is given, and then seen by its id."""

    def __init__(
        self,
        name: str,
        scope: Scope,
        prepare: Callable[[ScopeView], PreparedCall],
        *,
        when: str | None = None,
        policy: Policy | None = None,
        result_id: str | None = None,
    ) -> None:
        super().__init__(name)
        self.scope, self.prepare, self.when, self.result_id = scope, prepare, when, result_id
        self.own_policy = policy or Policy()

    async def execute(self, context: ExecutionContext) -> Result:
        view = self.scope.view(given=node_input(context.input))
        result = await self._perform(context, view) if self._should_run(view) else self._skip(context, view)
        self.scope.record(self.result_id, result)
        return result

    def _should_run(self, view: ScopeView) -> bool:
        return self.when is None or is_condition_true(self.when, view)

    def _skip(self, context: ExecutionContext, view: ScopeView) -> Result:
        context.emit("skipped", {"step_id": self.id, "path": context.path, "because": self.when})
        return Result.ok(view["given"], {"skipped": self.when})

    async def _perform(self, context: ExecutionContext, view: ScopeView) -> Result:
        prepared = self.prepare(view)
        inline = getattr(prepared.node, "inline", False)
        path = context.path if context.path or inline else context.next_path(self.id or "step")
        return await prepared.execute(
            context, path, self.own_policy, lambda failed: self.scope.record(self.result_id, failed)
        )


class SequenceNode(InlineNode):
    """One after the other, each with the output of the one before; a failure or a goto ends it."""

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
        """The steps that only look: what flows into one of them flows into the next."""

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


class ComputeNode(InlineNode):
    """A value that is computed, not called."""

    def __init__(self, name: str, compute: Callable[[ExecutionContext], Any]) -> None:
        super().__init__(name)
        self.compute = compute

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(self.compute(context))


class WithResult(InlineNode):
    """A node, and what its result comes to; a policy sees only that."""

    def __init__(self, node: Node, judge: Callable[[Result], Result]) -> None:
        super().__init__(node.id)
        self.node, self.judge = node, judge

    async def execute(self, context: ExecutionContext) -> Result:
        return self.judge(await self.node.execute(context))


class MapItemBody(InlineNode):
    """The body of a map, in a scope of its own for each item."""

    def __init__(self, name: str, scope: Scope, build: Callable[[Scope], ScopedStep]) -> None:
        super().__init__(name)
        self.scope, self.build = scope, build

    async def execute(self, context: ExecutionContext) -> Result:
        pair = context.input
        scope = self.scope.for_map_item(pair["item"], pair["index"])
        return await join_detached_prompts(scope, self.build(scope).execute(context.with_input(pair["item"])))


class Iteration(InlineNode):
    """The body of a loop, which sees as `iteration` how often it has run."""

    def __init__(self, name: str, scope: Scope, body: ScopedStep) -> None:
        super().__init__(name)
        self.scope, self.body = scope, body
        self.count = 0

    async def execute(self, context: ExecutionContext) -> Result:
        self.scope.local_values["iteration"] = self.count
        self.count += 1
        return await self.body.execute(context)


class Iterations(InlineNode):
    """A loop, whose iterations are counted anew whenever it is entered."""

    def __init__(self, loop: Node, iteration: Iteration) -> None:
        super().__init__(loop.id)
        self.loop, self.iteration = loop, iteration

    async def execute(self, context: ExecutionContext) -> Result:
        self.iteration.count = 0
        return await self.loop.execute(context)


class StateBody(InlineNode):
    """The body of a state; what it sent and did not wait for is joined before the state is left."""

    def __init__(self, name: str, scope: Scope, body: ScopedStep | None) -> None:
        super().__init__(name)
        self.scope, self.body = scope, body

    async def execute(self, context: ExecutionContext) -> Result:
        if self.body is None:
            return Result.ok(result_output(context.input))
        return await join_detached_prompts(self.scope, self.body.execute(context))


class WithTimeout(InlineNode):
    """A node with a timeout: when its time is up, the prompts that were sent in it are stopped."""

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
        # the time of a part is not the time of this node: for it that is a failure like any other
        return Result(result) if result.settlement == "timeout" else result


async def join_detached_prompts(scope: Scope, body: Awaitable[Result]) -> Result:
    """The result of a body, when the prompts that it sent are answered; one that failed unheard counts.

    A prompt is stopped if a wait for it has run out of time and its answer was not waited for again.
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
    """Wait for a prompt that was sent; its failure, if nobody has been told of that."""
    result = await scope.pending_prompts[tag].task
    del scope.pending_prompts[tag]
    was_awaited = tag in scope.awaited_tags
    scope.awaited_tags.discard(tag)
    return None if was_awaited or result.success else result


async def cancel_detached_prompts(scope: Scope, tags: Iterable[str]) -> None:
    """Stop the agents that were asked under these tags, and return when they have ended."""
    tasks = [scope.pending_prompts.pop(tag).task for tag in tags]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def limits_policy(spec: models.CallSpec | models.PromptSpec | models.WorkflowCallSpec) -> Policy:
    """What a step may spend, for whatever does it."""
    return NO_POLICY if spec.limits is None else Policy.of(limits=spec.limits.model_dump(exclude_none=True))


def sibling_path(path: str, name: str, count: int = 1) -> str:
    """A path next to that of a leaf: what lies below a leaf is over when the leaf is."""
    return f"{path}~{name}" if count == 1 else f"{path}~{name}[{count}]"


def node_input(value: Any) -> Any:
    """What flows into a node: the output of the one before, or the outputs of several."""
    if isinstance(value, Result):
        return value.output
    if type(value) is dict and value and all(isinstance(item, Result) for item in value.values()):
        return {name: item.output for name, item in value.items()}
    return value
