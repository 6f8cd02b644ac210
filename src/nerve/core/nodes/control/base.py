"""What the control nodes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from nerve.core.nodes.base import ControlNode
from nerve.core.result import Result

OnMax = Literal["fail", "return"]
OnBodyFailure = Literal["stop", "continue"]

__all__ = ["ControlNode", "OnBodyFailure", "OnMax", "ask", "body_failed", "check_max"]


def ask(owner: ControlNode, what: str, fn: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; if it raises, say whose and on what kind of value."""
    try:
        return fn(*arguments)
    except Exception as error:
        seen = ", ".join(type(getattr(given, "current_value", given)).__name__ for given in arguments)
        raise type_of(error)(f"{what} of '{owner.id}' raised on {seen}: {error}") from error


def type_of(error: Exception) -> type[Exception]:
    """The error's own type where it can be made from a message."""
    return type(error) if type(error).__init__ is Exception.__init__ else RuntimeError


def body_failed(owner: ControlNode, result: Result, done: int) -> Result:
    """The result of a loop that stops because its body failed."""
    return Result.failed(
        f"'{owner.id}' stopped in iteration {done}: {result.error}",
        result.error_type,
        result.output,
        {"iterations": done, "exited_early": True},
    )


def check_max(owner: ControlNode, max_iterations: int) -> int:
    if max_iterations < 0:
        raise ValueError(f"max_iterations of '{owner.id}' must not be negative, got {max_iterations}")
    return max_iterations
