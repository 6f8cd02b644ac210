"""One attempt at a leaf: executed, bounded in time, its exceptions turned into a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from nerve.core.nodes.base import Node, role_of
from nerve.core.policy import Policy
from nerve.core.result import UNCHANGING, Result, own
from nerve.errors import Suspended

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


UNKNOWN = "must happen at most once, and it is not known whether it did; it is not tried again"


class Stoppable(Protocol):
    """A clock that can stand still."""

    def stopped(self) -> AbstractContextManager[None]: ...


class Clock:
    """The time of an attempt as a whole, and how long nothing may be heard of it."""

    def __init__(self, whole: asyncio.Timeout, silence: asyncio.Timeout, policy: Policy) -> None:
        self._whole, self._silence, self._seconds = whole, silence, policy.idle_timeout
        self._left: float | None = None
        self._stops = 0

    def heard(self) -> None:
        if self._seconds is not None and not self._stops:
            due(self._silence, self._seconds)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let no time pass while the attempt waits for somebody else."""
        self._stops += 1
        if self._stops == 1:
            self._left = left(self._whole)
            due(self._whole, None)
            due(self._silence, None)
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                due(self._whole, self._left)
                self.heard()


def left(timeout: asyncio.Timeout) -> float | None:
    when = timeout.when()
    return None if when is None else when - asyncio.get_running_loop().time()


def due(timeout: asyncio.Timeout, seconds: float | None) -> None:
    try:
        now = asyncio.get_running_loop().time()
        timeout.reschedule(None if seconds is None else now + seconds)
    except RuntimeError:
        pass  # the attempt is over, and what is heard is a thread that still runs


def above(clocks: Mapping[str, Clock], place: str) -> list[Clock]:
    """The clocks of whoever listens at a place or above it."""
    return [clock for path, clock in clocks.items() if is_in(place, path)]


def is_in(path: str, place: str) -> bool:
    """Whether a path is a place, or lies below it."""
    return f"{path}/".startswith(f"{place}/")


@contextmanager
def stopped(clocks: Iterable[Stoppable]) -> Iterator[None]:
    with ExitStack() as stack:
        for clock in clocks:
            stack.enter_context(clock.stopped())
        yield


def heard(clocks: Mapping[str, Clock], place: str) -> None:
    """Something came from a place: whoever listens there, or above it, has heard it."""
    for clock in above(clocks, place):
        clock.heard()


async def attempt(
    node: Node, context: ExecutionContext, policy: Policy, hear: Callable[[Clock], None] | None = None
) -> Result:
    """What the node returned, or how it failed. `hear` is given its clock, if it is bounded in time.

    Whoever fails when its time is over fails for that, whatever it raises as it tidies up.
    """
    if policy.timeout is None and policy.idle_timeout is None:
        return await guarded(node, context)
    outer = asyncio.timeout(policy.timeout)
    inner = asyncio.timeout(policy.idle_timeout)
    try:
        async with outer, inner:
            if hear is not None:
                hear(Clock(outer, inner, policy))
            result = await guarded(node, context)
    except TimeoutError:
        return timed_out(policy, idle=inner.expired())
    late = not result["success"] and (outer.expired() or inner.expired())
    return timed_out(policy, idle=inner.expired()) if late else result


async def guarded(node: Node, context: ExecutionContext) -> Result:
    if type(context.input) not in UNCHANGING and role_of(node) == "leaf":
        context = apart(context)
    try:
        return Result.of(await node.execute(context))
    except asyncio.CancelledError as error:
        if is_cancelled() or role_of(node) != "leaf":
            raise
        return raised(error)
    except BaseException as error:
        if goes_through(error):
            raise
        return raised(error)


def raised(error: BaseException) -> Result:
    result = Result.raised(error)
    result.settled = "error"
    return result


THROUGH = (KeyboardInterrupt, GeneratorExit, Suspended)


def goes_through(error: BaseException) -> bool:
    """Whether it is for whoever runs the code: the process, the coroutine or the run is to end."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(THROUGH) is not None
    return isinstance(error, THROUGH)


def is_cancelled() -> bool:
    """Whether this task is to end, and not one that it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def apart(context: ExecutionContext) -> ExecutionContext:
    """The context with an input of its own: what a leaf does to it, nobody else sees."""
    try:
        return context.with_input(own(context.input))
    except (TypeError, ValueError, RecursionError):
        return context  # without a run there may be values that cannot be copied


class CutOff(list[str]):
    """The steps that must happen at most once and were begun, and that nobody let come to their end."""

    def within(self, place: str) -> str | None:
        """The first at a place, or in what is there."""
        return next((path for path in self if is_in(path, place)), None)


def unsure(result: Result, path: str) -> Result:
    """A failure after which nobody knows whether the step at a path has happened."""
    if UNKNOWN in (result.error or ""):
        return result
    return Result({**result, "error": f"{result.error}; {path} {UNKNOWN}"}).ended_as(result)


def timed_out(policy: Policy, idle: bool) -> Result:
    seconds, what = (policy.idle_timeout, "silent for") if idle else (policy.timeout, "timed out after")
    result = Result.failed(f"{what} {seconds:g} s", "TimeoutError")
    result.settled, result.allowed = "timeout", seconds
    return result
