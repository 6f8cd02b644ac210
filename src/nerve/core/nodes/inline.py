"""Inline execution of control nodes: only their parts are recorded, not the nodes themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nerve.core.nodes.attempt import execute_safely, timeout_result, with_unknown_outcome
from nerve.core.nodes.durable_timeout import durable_timeout
from nerve.core.policy import NO_RETRY, Policy
from nerve.core.result import Result
from nerve.core.runtime import NodeCall, TimerWait

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


async def run_inline(call: NodeCall) -> Result:
    """Execute the node of a call inline; on replay it decides again, from the same results."""
    assert call.context is not None
    context = call.context.child(call.path, call.input)
    return await run_with_retries(
        context, call.policy, lambda _: execute_safely(call.node, context), context.next_sibling_path
    )


async def run_with_retries(
    context: ExecutionContext,
    policy: Policy,
    run_once: Callable[[int], Awaitable[Result]],
    next_path: Callable[[str], str] | None = None,
) -> Result:
    """Retry inside the body, with durable timers for timeouts and backoffs.

    `next_path` returns the paths of the timers: below a node that is settled as a whole, else beside it.
    """
    next_path = next_path or context.next_internal_path
    retry = policy.retry or NO_RETRY
    number = 0
    while True:
        number += 1
        result = await run_with_timeout(context, policy, run_once(number), next_path)
        if not result.success and (interrupted := context.runtime.interrupted_step(context.path)) is not None:
            return with_unknown_outcome(result, interrupted)
        result, more = retry.decide(result, number)
        if not more:
            return result
        pause = retry.backoff_seconds(number, context.runtime.random(f"{context.path}~{number}"))
        await context.wait(TimerWait(next_path("retry"), pause))


async def run_with_timeout(
    context: ExecutionContext, policy: Policy, attempt: Awaitable[Result], next_path: Callable[[str], str]
) -> Result:
    if policy.timeout is None:
        return await attempt
    try:
        async with durable_timeout(context.wait, next_path("timeout"), policy.timeout, context.path):
            return await attempt
    except TimeoutError as error:
        return timeout_result(policy, False, error)
