"""One attempt at a leaf: execute it with its timeouts, and turn exceptions into a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from nerve.core.clock import SYSTEM_CLOCK, Clock, ClockTimeout
from nerve.core.nodes.base import Node, node_role
from nerve.core.policy import Policy
from nerve.core.result import IMMUTABLE_TYPES, Result, deep_copy_json
from nerve.errors import Suspended

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


UNKNOWN_OUTCOME_MESSAGE = (
    "has effect='once' and was interrupted; its outcome is unknown, so it is not retried"
)


class SupportsPause(Protocol):
    """A timer that can be paused."""

    def pause(self) -> AbstractContextManager[None]: ...


class AttemptTimer:
    """The total timeout and the idle timeout of an attempt."""

    def __init__(self, total: ClockTimeout, idle: ClockTimeout, policy: Policy) -> None:
        self._total_timeout, self._idle_timeout, self._idle_seconds = total, idle, policy.idle_timeout
        self._remaining_seconds: float | None = None
        self._pause_count = 0

    @property
    def is_silent(self) -> bool:
        """Whether only the idle timeout has expired."""
        return self._idle_timeout.is_expired and not self._total_timeout.is_expired

    def reset_idle(self) -> None:
        if self._idle_seconds is not None and not self._pause_count:
            self._idle_timeout.restart(self._idle_seconds)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause both timeouts while the attempt waits for input, a budget or a rate limit."""
        self._pause_count += 1
        if self._pause_count == 1:
            self._remaining_seconds = self._total_timeout.remaining_seconds
            self._total_timeout.restart(None)
            self._idle_timeout.restart(None)
        try:
            yield
        finally:
            self._pause_count -= 1
            if not self._pause_count:
                self._total_timeout.restart(self._remaining_seconds)
                self.reset_idle()


def timers_around(timers: Mapping[str, AttemptTimer], inner_path: str) -> list[AttemptTimer]:
    """Return the timers of the attempts at a path and at its ancestors."""
    return [timer for path, timer in timers.items() if is_same_or_below(inner_path, path)]


def is_same_or_below(path: str, ancestor: str) -> bool:
    """Return whether a path is `ancestor` or below it."""
    return f"{path}/".startswith(f"{ancestor}/")


def is_silent_at(timers: Mapping[str, AttemptTimer], path: str) -> bool:
    """Return whether the idle timeout of the attempt at a path has expired, and nothing else ends it."""
    task, timer = asyncio.current_task(), timers.get(path)
    return timer is not None and timer.is_silent and task is not None and task.cancelling() <= 1


@contextmanager
def pause_timers(timers: Iterable[SupportsPause]) -> Iterator[None]:
    with ExitStack() as stack:
        for timer in timers:
            stack.enter_context(timer.pause())
        yield


def reset_idle_timers(timers: Mapping[str, AttemptTimer], path: str) -> None:
    """Restart the idle timeouts at a path and at its ancestors, because an event came from there."""
    for timer in timers_around(timers, path):
        timer.reset_idle()


async def run_attempt(
    node: Node,
    context: ExecutionContext,
    policy: Policy,
    on_timer: Callable[[AttemptTimer], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Result:
    """Return the result of the node, also of a failure. `on_timer` receives its timer, if it has timeouts.

    A leaf gets a copy of the input, because a later attempt needs the original. A node that fails after its
    timeout has expired times out, whatever it raises while cleaning up.
    """
    if type(context.input) not in IMMUTABLE_TYPES and node_role(node) == "leaf":
        context = with_copied_input(context)
    if policy.timeout is None and policy.idle_timeout is None:
        return await execute_safely(node, context)
    outer, inner = ClockTimeout(clock, policy.timeout), ClockTimeout(clock, policy.idle_timeout)
    try:
        async with outer, inner:
            if on_timer is not None:
                on_timer(AttemptTimer(outer, inner, policy))
            result = await execute_safely(node, context)
    except TimeoutError as error:
        return timeout_result(policy, inner.is_expired, error)
    # A node can catch the cancellation of its timeout and fail with an error of its cleanup instead.
    late = not result["success"] and (outer.is_expired or inner.is_expired)
    return timeout_result(policy, inner.is_expired, result.cause) if late else result


CURRENT_WORKFLOW: ContextVar[Any] = ContextVar("CURRENT_WORKFLOW", default=None)
"""The WorkflowContext of the body that the current task belongs to; None in a leaf and outside of bodies."""


async def execute_safely(node: Node, context: ExecutionContext) -> Result:
    """Return the result of the node, which may change its input; an exception is a failed result."""
    is_leaf = getattr(node, "role", "leaf") == "leaf"
    # A leaf has effects of its own: a step that it calls is just a function there.
    token = CURRENT_WORKFLOW.set(None) if is_leaf else None
    try:
        if context.workspace is not None and getattr(node, "changes_files", False):
            return await context.workspace.execute(node, context)
        return Result.of(await node.execute(context))
    except asyncio.CancelledError as error:
        if is_task_cancelled() or not is_leaf:
            raise
        return exception_result(error)
    except GeneratorExit:
        token = None  # the garbage collector closes a dropped coroutine in another context
        raise
    except BaseException as error:
        if must_propagate(error):
            raise
        return exception_result(error)
    finally:
        if token is not None:
            CURRENT_WORKFLOW.reset(token)


def exception_result(error: BaseException) -> Result:
    result = Result.from_exception(error)
    result.settlement = "error"
    return result


PROPAGATED_ERRORS = (KeyboardInterrupt, GeneratorExit, Suspended)


def must_propagate(error: BaseException) -> bool:
    """Return whether an exception ends the process, the coroutine or the run, and not just the node."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(PROPAGATED_ERRORS) is not None
    return isinstance(error, PROPAGATED_ERRORS)


def is_task_cancelled() -> bool:
    """Return whether the current task is cancelled, and not only a task that it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def with_copied_input(context: ExecutionContext) -> ExecutionContext:
    """Return the context with a copy of the input, so that a leaf cannot change the input of others."""
    try:
        return context.with_input(deep_copy_json(context.input))
    except (TypeError, ValueError, RecursionError):
        return context  # without a run, values need not be JSON


class InterruptedSteps(list[str]):
    """Paths of steps with effect="once" that were started and interrupted."""

    def find_within(self, ancestor: str) -> str | None:
        """Return the first path at or below `ancestor`, or None."""
        return next((path for path in self if is_same_or_below(path, ancestor)), None)


def with_unknown_outcome(result: Result, path: str) -> Result:
    """Return a failure whose error says that the outcome of the step at a path is unknown."""
    if UNKNOWN_OUTCOME_MESSAGE in (result.error or ""):
        return result
    return Result({**result, "error": f"{result.error}; {path} {UNKNOWN_OUTCOME_MESSAGE}"}).with_settlement(
        result
    )


def timeout_result(policy: Policy, idle: bool, interruption: BaseException | None = None) -> Result:
    seconds, what = (policy.idle_timeout, "silent for") if idle else (policy.timeout, "timed out after")
    result = Result.failed(f"{what} {seconds:g} s", "TimeoutError")
    result.settlement, result.timeout_seconds, result.interruption = "timeout", seconds, interruption
    return result
