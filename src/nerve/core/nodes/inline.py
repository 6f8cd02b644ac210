"""Control nodes entered as part of the body around them: nothing is recorded but what their parts do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nerve.core.nodes.attempt import guarded, timed_out, unsure
from nerve.core.nodes.bound import bounded
from nerve.core.policy import ONE_TRY, Policy
from nerve.core.result import Result
from nerve.core.runtime import Call, Timer

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


async def inlined(call: Call) -> Result:
    """Execute the node of a call in here; on replay it decides again, from the same results."""
    assert call.context is not None
    context = call.context.child(call.path, call.input)
    return await again(context, call.policy, lambda _: guarded(call.node, context), context.aside)


async def again(
    context: ExecutionContext,
    policy: Policy,
    once: Callable[[int], Awaitable[Result]],
    take: Callable[[str], str] | None = None,
) -> Result:
    """Attempts that are part of the body: their bounds are recorded, and between them the body sleeps.

    `take` gives the paths of both: below what is settled as a whole, beside what is not.
    """
    take = take or context.take_own
    retry = policy.retry or ONE_TRY
    number = 0
    while True:
        number += 1
        result = await within(context, policy, once(number), take)
        if not result.success and (cut := context.runtime.cut_off(context.path)) is not None:
            return unsure(result, cut)
        result, more = retry.judge(result, number)
        if not more:
            return result
        pause = retry.pause(number, context.runtime.random(f"{context.path}~{number}"))
        await context.wait(Timer(take("retry"), pause))


async def within(
    context: ExecutionContext, policy: Policy, attempt: Awaitable[Result], take: Callable[[str], str]
) -> Result:
    if policy.timeout is None:
        return await attempt
    try:
        async with bounded(context.wait, take("timeout"), policy.timeout, context.path):
            return await attempt
    except TimeoutError:
        return timed_out(policy, idle=False)
