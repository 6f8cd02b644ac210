"""Helpers of the control nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from nerve.core.nodes.attempt import must_propagate
from nerve.core.nodes.base import ControlNode
from nerve.core.nodes.function_params import bind_params
from nerve.core.output_views import wrap_output_function
from nerve.core.result import Result, error_text, is_final_rejection, result_output
from nerve.core.validation import (
    reject_awaitable,
    require_int,
    require_mapping,
    require_name,
    require_node,
    require_one_of,
)

OnMax = Literal["fail", "return"]
OnBodyFailure = Literal["stop", "continue"]

__all__ = [
    "ControlNode",
    "OnBodyFailure",
    "OnMax",
    "as_list",
    "bind_params",
    "body_failure_result",
    "call_user_function",
    "check_loop",
    "ends_loop",
    "evaluate_user_condition",
    "loop_result",
    "require_at_least",
    "require_named_nodes",
    "wrap_output_function",
]


def call_user_function(owner: ControlNode, what: str, fn: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user function; an error names its owner and the types of its arguments."""
    try:
        return reject_awaitable(fn(*arguments))
    except BaseException as error:
        if must_propagate(error):
            raise
        type_names = ", ".join(type(result_output(argument)).__name__ for argument in arguments)
        raise error_with_message(
            error, f"{what} of '{owner.id}' raised on {type_names}: {error_text(error)}"
        ) from error


def evaluate_user_condition(owner: ControlNode, what: str, fn: Callable[..., Any], *arguments: Any) -> bool:
    """Return the truth value of the result of a user function."""
    return bool(
        call_user_function(owner, what, lambda *values: bool(reject_awaitable(fn(*values))), *arguments)
    )


NOT_RAISABLE_IN_COROUTINES = (StopIteration, StopAsyncIteration)
"""Exceptions that a coroutine cannot raise."""


def error_with_message(error: BaseException, message: str) -> Exception:
    """Return an error of the same built-in type with another message, else a RuntimeError."""
    if not isinstance(error, Exception) or isinstance(error, NOT_RAISABLE_IN_COROUTINES):
        return RuntimeError(message)
    if type(error).__module__ == "builtins":
        try:
            return type(error)(message)
        except TypeError:
            pass
    return RuntimeError(message)


def as_list(value: Any) -> list[Any]:
    """Return the items of a list, or of the list in a Result; any other value is the only item."""
    value = result_output(value)
    return list(value) if isinstance(value, list | tuple) else [value]


def require_at_least(minimum: int, owner: str, name: str, value: int) -> int:
    return require_int(f"{name} of '{owner}'", value, minimum)


def check_loop(owner: str, body: Any, on_max: str, on_body_failure: str) -> None:
    """Check the settings that all loops have."""
    require_node(f"body of '{owner}'", body)
    require_one_of(f"on_max of '{owner}'", on_max, get_args(OnMax))
    require_one_of(f"on_body_failure of '{owner}'", on_body_failure, get_args(OnBodyFailure))


def require_named_nodes(owner: str, what: str, mapping: Any) -> dict[str, Any]:
    """Return the nodes of a control node by name; ValueError for an invalid name or node."""
    nodes = dict(require_mapping(f"{what} of '{owner}'", mapping))
    for name, node in nodes.items():
        require_name(f"a part of '{owner}'", name)
        require_node(f"{name!r} of '{owner}'", node)
    return nodes


def ends_loop(result: Result, on_body_failure: OnBodyFailure) -> bool:
    """Return whether the result of the body stops the loop; a rejection stops every loop."""
    return not result.success and (on_body_failure == "stop" or is_final_rejection(result))


def body_failure_result(owner: ControlNode, result: Result, iterations: int) -> Result:
    """Return the result of a loop that stops because its body failed."""
    return Result.failed(
        f"'{owner.id}' stopped in iteration {iterations}: {result.error}",
        result.error_type,
        result.output,
        {"iterations": iterations, "exited_early": True},
    )


def loop_result(
    owner: ControlNode, output: Any, iterations: int, finished: bool, on_max: OnMax, early: bool = True
) -> Result:
    """Return the result of a loop that finished or reached max_iterations; `early`: by its condition."""
    attributes = {"iterations": iterations, "exited_early": finished and early}
    if finished or on_max == "return":
        return Result.ok(output, attributes)
    return Result.failed(
        f"'{owner.id}' reached max_iterations={iterations} before it was done",
        "MaxIterations",
        output,
        attributes,
    )
