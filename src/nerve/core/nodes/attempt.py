"""One attempt at a leaf: executed, bounded in time, its exceptions turned into a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nerve.core.nodes.base import Node
from nerve.core.policy import Policy
from nerve.core.result import Result

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


class IdleClock:
    """Runs out when nothing has been heard for a while."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout, self._seconds = timeout, seconds

    def heard(self) -> None:
        try:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)
        except RuntimeError:
            pass  # the attempt is over, and what is heard is a thread that still runs


def heard(clocks: Mapping[str, IdleClock], place: str) -> None:
    """Something came from a place: whoever listens there, or above it, has heard it."""
    for path, clock in clocks.items():
        if place == path or place.startswith(path + "/"):
            clock.heard()


async def attempt(
    node: Node, context: ExecutionContext, policy: Policy, hear: Callable[[IdleClock], None] | None = None
) -> Result:
    """What the node returned, or how it failed. `hear` is given the idle clock, if there is one."""
    if policy.timeout is None and policy.idle_timeout is None:
        return await guarded(node, context)
    outer = asyncio.timeout(policy.timeout)
    inner = asyncio.timeout(policy.idle_timeout)
    try:
        async with outer, inner:
            if policy.idle_timeout is not None and hear is not None:
                hear(IdleClock(inner, policy.idle_timeout))
            return await guarded(node, context)
    except TimeoutError:
        return timed_out(policy, idle=inner.expired())


async def guarded(node: Node, context: ExecutionContext) -> Result:
    try:
        return Result.of(await node.execute(context))
    except Exception as error:
        result = Result.raised(error)
        result.settled = "error"
        return result


def timed_out(policy: Policy, idle: bool) -> Result:
    if idle:
        result = Result.failed(f"silent for {policy.idle_timeout:g} s", "TimeoutError")
    else:
        result = Result.failed(f"timed out after {policy.timeout:g} s", "TimeoutError")
    result.settled = "timeout"
    return result
