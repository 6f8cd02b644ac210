"""The nodes that only a spec needs: steps in a scope, sequences, and what is computed rather than called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.nodes.attempt import is_in
from nerve.core.nodes.base import ControlNode, Node, policy_for
from nerve.core.nodes.context import ExecutionContext, recovered
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, output_of
from nerve.core.runtime import Call
from nerve.spec import models
from nerve.spec.scope import Scope, Sight
from nerve.spec.values import holds


@dataclass(slots=True)
class Entry:
    """A node to be entered, its input, for a workflow its parameters, and what is made of its result."""

    node: Node
    input: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    after: Callable[[Result], Result] | None = None
    policy: Policy = NO_POLICY
    """What is said of the node itself, whatever is wrapped around it."""

    async def entered(
        self,
        context: ExecutionContext,
        path: str,
        own: Policy = NO_POLICY,
        note_failure: Callable[[Result], None] | None = None,
    ) -> Result:
        """Execute it at a path, and give what is made of its result.

        `note_failure` is given a failure before its handler is executed, which may want to see it.
        """
        policy = policy_for(self.node, own.over(self.policy))
        name = self.node.id or path.rpartition("/")[2].partition("[")[0] or "step"
        call = Call(path, self.node, name, self.input, policy, False, context, self.params)
        result = await context.enter(call)
        if not result.success and policy.instead_of(result):
            if note_failure is not None:
                note_failure(result)
            result = await recovered(context, result, call)
        return self.after(result) if self.after else result


class Inline(ControlNode):
    """A control node of a spec: part of the body, decided again on replay."""

    inline = True


class Step(Inline):
    """A node of a spec at its place: skipped or entered with what it is given, and then seen by its id."""

    def __init__(
        self,
        name: str,
        scope: Scope,
        make: Callable[[Sight], Entry],
        *,
        when: str | None = None,
        policy: Policy | None = None,
        seen_as: str | None = None,
    ) -> None:
        super().__init__(name)
        self.scope, self.make, self.when, self.seen_as = scope, make, when, seen_as
        self.own = policy or Policy()

    async def execute(self, context: ExecutionContext) -> Result:
        sight = self.scope.sight(given=given_of(context.input))
        result = await self._perform(context, sight) if self._wanted(sight) else self._skip(context, sight)
        self.scope.record(self.seen_as, result)
        return result

    def _wanted(self, sight: Sight) -> bool:
        return self.when is None or holds(self.when, sight)

    def _skip(self, context: ExecutionContext, sight: Sight) -> Result:
        context.emit("skipped", {"step_id": self.id, "path": context.path, "because": self.when})
        return Result.ok(sight["given"], {"skipped": self.when})

    async def _perform(self, context: ExecutionContext, sight: Sight) -> Result:
        made = self.make(sight)
        inline = getattr(made.node, "inline", False)
        path = context.path if context.path or inline else context.take(self.id or "step")
        return await made.entered(
            context, path, self.own, lambda failed: self.scope.record(self.seen_as, failed)
        )


class Sequence(Inline):
    """One after the other, each with the output of the one before; a failure or a goto ends it."""

    def __init__(
        self, name: str, scope: Scope, steps: Iterable[Step], asides: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(name)
        self.scope, self.sequence = scope, list(steps)
        self.asides = asides
        """The steps that only look: what flows into one of them flows into the next."""

    def parts(self) -> Iterable[Node]:
        return self.sequence

    async def execute(self, context: ExecutionContext) -> Result:
        result, given = Result.ok(output_of(context.input)), context.input
        for n, step in enumerate(self.sequence):
            result = await context.call(step, given)
            if n not in self.asides:
                given = result
            if not result.success or self.scope.way.leaving:
                break
        return result


class Compute(Inline):
    """A value that is computed, not called."""

    def __init__(self, name: str, compute: Callable[[ExecutionContext], Any]) -> None:
        super().__init__(name)
        self.compute = compute

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(self.compute(context))


class Judged(Inline):
    """A node, and what its result comes to; a policy sees only that."""

    def __init__(self, node: Node, judge: Callable[[Result], Result]) -> None:
        super().__init__(node.id)
        self.node, self.judge = node, judge

    async def execute(self, context: ExecutionContext) -> Result:
        return self.judge(await self.node.execute(context))


class PerItem(Inline):
    """The body of a map, in a scope of its own for each item."""

    def __init__(self, name: str, scope: Scope, build: Callable[[Scope], Step]) -> None:
        super().__init__(name)
        self.scope, self.build = scope, build

    async def execute(self, context: ExecutionContext) -> Result:
        pair = context.input
        scope = self.scope.inside(pair["item"], pair["index"])
        return await joined(scope, self.build(scope).execute(context.with_input(pair["item"])))


class Turn(Inline):
    """The body of a loop, which sees as `iteration` how often it has run."""

    def __init__(self, name: str, scope: Scope, body: Step) -> None:
        super().__init__(name)
        self.scope, self.body = scope, body
        self.count = 0

    async def execute(self, context: ExecutionContext) -> Result:
        self.scope.given["iteration"] = self.count
        self.count += 1
        return await self.body.execute(context)


class Turns(Inline):
    """A loop, whose iterations are counted anew whenever it is entered."""

    def __init__(self, loop: Node, turn: Turn) -> None:
        super().__init__(loop.id)
        self.loop, self.turn = loop, turn

    async def execute(self, context: ExecutionContext) -> Result:
        self.turn.count = 0
        return await self.loop.execute(context)


class StateBody(Inline):
    """The body of a state; what it sent and did not wait for is joined before the state is left."""

    def __init__(self, name: str, scope: Scope, body: Step | None) -> None:
        super().__init__(name)
        self.scope, self.body = scope, body

    async def execute(self, context: ExecutionContext) -> Result:
        if self.body is None:
            return Result.ok(output_of(context.input))
        return await joined(self.scope, self.body.execute(context))


class Bounded(Inline):
    """A node with a timeout: when its time is up, the prompts that were sent in it are stopped."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.id)
        self.node, self.scope = node, scope

    async def execute(self, context: ExecutionContext) -> Result:
        try:
            result = await self.node.execute(context)
        except asyncio.CancelledError:
            sent = self.scope.detached.items()
            await give_up(self.scope, [tag for tag, each in sent if is_in(each.path, context.path)])
            raise
        # the time of a part is not the time of this node: for it that is a failure like any other
        return Result(result) if result.settled == "timeout" else result


async def joined(scope: Scope, body: Awaitable[Result]) -> Result:
    """The result of a body, when the prompts that it sent are answered; one that failed unheard counts.

    A prompt is stopped if a wait for it has run out of time and its answer was not waited for again.
    """
    try:
        result = await body
        await give_up(scope, [tag for tag, sent in scope.detached.items() if sent.overdue])
        failures = [failure for tag in list(scope.detached) if (failure := await join(scope, tag))]
    except asyncio.CancelledError:
        await give_up(scope, list(scope.detached))
        raise
    return failures[0] if failures and result.success else result


async def join(scope: Scope, tag: str) -> Result | None:
    """Wait for a prompt that was sent; its failure, if nobody has been told of that."""
    result = await scope.detached[tag].task
    del scope.detached[tag]
    heard = tag in scope.heard
    scope.heard.discard(tag)
    return None if heard or result.success else result


async def give_up(scope: Scope, tags: Iterable[str]) -> None:
    """Stop the agents that were asked under these tags, and return when they have ended."""
    tasks = [scope.detached.pop(tag).task for tag in tags]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def budget_of(spec: models.Call | models.Prompt | models.WorkflowCall) -> Policy:
    """What a step may spend, for whatever does it."""
    return NO_POLICY if spec.limits is None else Policy.of(limits=spec.limits.model_dump(exclude_none=True))


def beside(path: str, name: str, count: int = 1) -> str:
    """A path next to that of a leaf: what lies below a leaf is over when the leaf is."""
    return f"{path}~{name}" if count == 1 else f"{path}~{name}[{count}]"


def given_of(value: Any) -> Any:
    """What flows into a node: the output of the one before, or the outputs of several."""
    if isinstance(value, Result):
        return value.output
    if type(value) is dict and value and all(isinstance(item, Result) for item in value.values()):
        return {name: item.output for name, item in value.items()}
    return value
