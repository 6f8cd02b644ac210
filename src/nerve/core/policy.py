"""Policies: retries, timeouts, fallbacks and budgets of a step."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from nerve.core.json_diagnostics import truncate_error_text
from nerve.core.limits import Limits, parse_step_limits
from nerve.core.queues import Queue, queue_name
from nerve.core.result import Result, is_rejected
from nerve.core.validation import (
    is_node,
    reject_awaitable,
    require_int,
    require_non_negative,
    require_seconds,
    require_sync_callable,
)
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from nerve.core.nodes.base import Node

OnError = Literal["fail", "skip"]
Effect = Literal["repeat", "once"]
ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry up to `attempts` attempts in all, or without end if it is None, with exponential backoff.

    The first backoff is `delay` seconds; each further one is multiplied by `factor`, up to `cap` seconds.
    `jitter` adds up to that fraction of the backoff. `on` lists the error types to retry, or is a function
    of the failed result; empty means all. If that function raises, the step is not retried, and its error
    mentions the exception. `retry_on` and `not_on` list exception types, which include their subclasses; an
    error that is in both is not retried.
    """

    attempts: int | None = 3
    delay: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.0
    on: tuple[str, ...] | Callable[[Result], bool] = ()
    retry_on: ExceptionTypes = ()
    not_on: ExceptionTypes = ()

    def __post_init__(self) -> None:
        if self.attempts is not None:
            require_int("Retry.attempts", self.attempts, 1)
        for name in ("retry_on", "not_on"):
            types = exception_types(getattr(self, name))
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in types):
                raise ValueError(
                    f"Retry.{name} must be exception types such as (ConnectionError,), got"
                    f" {getattr(self, name)!r}"
                )
        require_non_negative("Retry.cap", self.cap)
        for name in ("delay", "factor", "jitter"):
            if require_non_negative(f"Retry.{name}", getattr(self, name)) == math.inf:
                raise ValueError(f"Retry.{name} must be finite, got inf")
        has_only_names = isinstance(self.on, Collection) and all(isinstance(name, str) for name in self.on)
        if isinstance(self.on, str | type) or not (callable(self.on) or has_only_names):
            raise ValueError(
                f"Retry.on must be a tuple of names such as ('TimeoutError',), or a function of the failed"
                f" result, got {self.on!r}"
            )
        if callable(self.on):
            require_sync_callable("Retry.on", self.on)

    def should_retry(self, result: Result, attempt: int) -> bool:
        """Return whether a failed `attempt` (counted from 1) is followed by another."""
        if result.success or is_rejected(result) or (self.attempts is not None and attempt >= self.attempts):
            return False
        if is_error_of(result, self.not_on) or (self.retry_on and not is_error_of(result, self.retry_on)):
            return False
        if callable(self.on):
            return bool(reject_awaitable(self.on(result)))
        return not self.on or result.error_type in self.on

    def decide(self, result: Result, attempt: int) -> tuple[Result, bool]:
        """Return the result of an `attempt` and whether to retry; an exception in `on` ends the step."""
        try:
            return result, self.should_retry(result, attempt)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            message = (
                f"{result.error}; Retry.on, {function_location(self.on)}, raised {type(error).__name__}: "
                f"{error}"
            )
            return Result({**result, "error": truncate_error_text(message)}).with_settlement(result), False

    def backoff_seconds(self, attempt: int, chance: float) -> float:
        """Return the seconds between `attempt` and the next; `chance` is a random number from 0 to 1."""
        try:
            grown = self.delay * self.factor ** (attempt - 1)
        except OverflowError:
            grown = self.cap if self.delay else 0.0
        return min(self.cap, grown) * (1 + self.jitter * chance)


def exception_types(types: ExceptionTypes) -> tuple[type[BaseException], ...]:
    return (types,) if isinstance(types, type) else tuple(types)


def is_error_of(result: Result, types: ExceptionTypes) -> bool:
    """Return whether a failure was caused by one of these exception types."""
    # An agent or a child run reports only the name of an error.
    if result.cause is None:
        return result.error_type in {kind.__name__ for kind in exception_types(types)}
    return isinstance(result.cause, exception_types(types))


NO_RETRY = Retry(attempts=1)
"""The default: a single attempt."""


def function_location(function: Any) -> str:
    """Return the name of a function, with its file and line."""
    code = getattr(function, "__code__", None)
    where = f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
    return f"{getattr(function, '__qualname__', None) or repr(function)}{where}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a step beside its input; unset fields fall back to those of the node, then to defaults."""

    retry: Retry | None = None
    timeout: float | None = None
    idle_timeout: float | None = None
    on_error: OnError | Node | None = None
    effect: Effect | None = None
    limits: Limits | None = None
    """The budget of the step: tokens, cost, turns."""
    on_timeout: OnError | Node | None = None
    """Replaces `on_error` when the `timeout` of the step itself expires; set only by workflow files."""
    queue: str | None = None
    """The name of the queue whose slot the step needs to run."""

    @classmethod
    def of(
        cls,
        retry: Retry | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_error: OnError | Node | None = None,
        effect: Effect | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        queue: str | Queue | None = None,
    ) -> Policy:
        """Return a policy of these settings; ValueError for an invalid one."""
        if (retry, timeout, idle_timeout, on_error, effect, limits, None, queue) == _UNSET:
            return NO_POLICY
        name = None if queue is None else queue_name(queue)
        policy = cls(retry, timeout, idle_timeout, on_error, effect, parse_step_limits(limits), queue=name)
        policy._check()
        return policy

    def _check(self) -> None:
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise ValueError(f"retry must be a Retry, such as Retry(attempts=3), got {self.retry!r}")
        for name in ("timeout", "idle_timeout"):
            if (value := getattr(self, name)) is not None:
                require_seconds(name, value)
        if self.on_error not in (None, "fail", "skip") and not is_node(self.on_error):
            raise ValueError(f"on_error must be 'fail', 'skip' or a node, got {self.on_error!r}")
        if self.effect not in (None, "repeat", "once"):
            raise ValueError(f"effect must be 'repeat' or 'once', got {self.effect!r}")

    def fallback_for(self, failure: Result) -> OnError | Node | None:
        """Return the fallback for a failure; None and 'fail' leave the failure as it is."""
        is_late = failure.settlement == "timeout" and self.on_timeout is not None
        return self.on_timeout if is_late else self.on_error

    def with_defaults(self, defaults: Policy) -> Policy:
        """Return these settings, completed by those of `defaults`."""
        if defaults is NO_POLICY or self is defaults:
            return self
        if self is NO_POLICY:
            return defaults
        missing = {name: getattr(defaults, name) for name in self.__slots__ if getattr(self, name) is None}
        return replace(self, **missing)


NO_POLICY = Policy()
_UNSET = (None,) * len(Policy.__slots__)
