"""What the control nodes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from nerve.core.checks import a_count, a_mapping, a_name, a_node, at_once, one_of
from nerve.core.nodes.attempt import goes_through
from nerve.core.nodes.base import ControlNode
from nerve.core.nodes.params import with_params
from nerve.core.output_views import on_output
from nerve.core.result import Result, is_final, output_of, text_of

OnMax = Literal["fail", "return"]
OnBodyFailure = Literal["stop", "continue"]

__all__ = [
    "ControlNode",
    "OnBodyFailure",
    "OnMax",
    "as_list",
    "ask",
    "at_least",
    "body_failed",
    "check_loop",
    "ends_loop",
    "holds",
    "loop_over",
    "named_nodes",
    "on_output",
    "with_params",
]


def ask(owner: ControlNode, what: str, fn: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; if it raises, say whose and on what kind of value."""
    try:
        return at_once(fn(*arguments))
    except BaseException as error:
        if goes_through(error):
            raise
        seen = ", ".join(type(output_of(given)).__name__ for given in arguments)
        raise retold(error, f"{what} of '{owner.id}' raised on {seen}: {text_of(error)}") from error


def holds(owner: ControlNode, what: str, fn: Callable[..., Any], *arguments: Any) -> bool:
    """Whether what a user's function says is true."""
    return bool(ask(owner, what, lambda *given: bool(at_once(fn(*given))), *arguments))


UNRAISABLE = (StopIteration, StopAsyncIteration)
"""What no coroutine can raise."""


def retold(error: BaseException, message: str) -> Exception:
    """The same kind of error with another message, where it can be made from one and ends nothing else."""
    if not isinstance(error, Exception) or isinstance(error, UNRAISABLE):
        return RuntimeError(message)
    if type(error).__module__ == "builtins":
        try:
            return type(error)(message)
        except TypeError:
            pass
    return RuntimeError(message)


def as_list(value: Any) -> list[Any]:
    """The items of a list, or of a Result's; anything else is one item."""
    value = output_of(value)
    return list(value) if isinstance(value, list | tuple) else [value]


def at_least(least: int, owner: str, name: str, value: int) -> int:
    return a_count(f"{name} of '{owner}'", value, least)


def check_loop(owner: str, body: Any, on_max: str, on_body_failure: str) -> None:
    """What all loops are given."""
    a_node(f"body of '{owner}'", body)
    one_of(f"on_max of '{owner}'", on_max, get_args(OnMax))
    one_of(f"on_body_failure of '{owner}'", on_body_failure, get_args(OnBodyFailure))


def named_nodes(owner: str, what: str, given: Any) -> dict[str, Any]:
    """Nodes by the names that they have in a control node."""
    made = dict(a_mapping(f"{what} of '{owner}'", given))
    for name, node in made.items():
        a_name(f"a part of '{owner}'", name)
        a_node(f"{name!r} of '{owner}'", node)
    return made


def ends_loop(result: Result, on_body_failure: OnBodyFailure) -> bool:
    """Whether a loop stops at how its body ended; a rejection stops every loop."""
    return not result.success and (on_body_failure == "stop" or is_final(result))


def body_failed(owner: ControlNode, result: Result, done: int) -> Result:
    """The result of a loop that stops because its body failed."""
    return Result.failed(
        f"'{owner.id}' stopped in iteration {done}: {result.error}",
        result.error_type,
        result.output,
        {"iterations": done, "exited_early": True},
    )


def loop_over(
    owner: ControlNode, output: Any, iterations: int, finished: bool, on_max: OnMax, early: bool = True
) -> Result:
    """The result of a loop that is finished, or has reached its bound; `early` if its condition ended it."""
    attributes = {"iterations": iterations, "exited_early": finished and early}
    if finished or on_max == "return":
        return Result.ok(output, attributes)
    return Result.failed(
        f"'{owner.id}' reached max_iterations={iterations} before it was done",
        "MaxIterations",
        output,
        attributes,
    )
