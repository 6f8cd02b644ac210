"""Helpers of the control nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.attempt import must_propagate
from nerve.core.nodes.base import ControlNode, Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
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
    "RepeatingNode",
    "as_list",
    "bind_params",
    "body_failure_result",
    "call_user_function",
    "evaluate_user_condition",
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


def require_named_nodes(owner: str, what: str, mapping: Any) -> dict[str, Any]:
    """Return the nodes of a control node by name; ValueError for an invalid name or node."""
    nodes = dict(require_mapping(f"{what} of '{owner}'", mapping))
    for name, node in nodes.items():
        require_name(f"a part of '{owner}'", name)
        require_node(f"{name!r} of '{owner}'", node)
    return nodes


def body_failure_result(owner: ControlNode, result: Result, iterations: int) -> Result:
    """Return the result of a loop that stops because its body failed."""
    return Result.failed(
        f"'{owner.id}' stopped in iteration {iterations}: {result.error}",
        result.error_type,
        result.output,
        {"iterations": iterations, "exited_early": True},
    )


class RepeatingNode(ControlNode):
    """A node that executes its body again and again, each time with the previous output."""

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        body: Node,
        max_iterations: int,
        on_max: OnMax,
        on_body_failure: OnBodyFailure,
        **policy: Any,
    ) -> None:
        self.body = require_node(f"body of '{id}'", body)
        self.on_max: OnMax = require_one_of(f"on_max of '{id}'", on_max, get_args(OnMax))
        self.on_body_failure: OnBodyFailure = require_one_of(
            f"on_body_failure of '{id}'", on_body_failure, get_args(OnBodyFailure)
        )
        self.max_iterations = require_at_least(0, id, "max_iterations", max_iterations)
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.body]

    async def repeat_body(
        self,
        context: ExecutionContext,
        limit: int,
        is_finished: Callable[[int, Any], bool],
        results: list[Result],
        times: int | None = None,
        accumulate: bool = False,
    ) -> Result:
        """Execute the body until `is_finished(iteration, latest)`, and add each Result to `results`.

        `latest` is the input, then the last Result. A failure of the body ends the loop unless it continues;
        a rejection ends every loop. With `accumulate` the output is the list of all Results.
        """
        latest, next_input, iteration = context.input, context.input, 0
        while not (finished := is_finished(iteration, latest)) and iteration < limit:
            data = {"loop_id": self.id, "iteration": iteration, "max": limit}
            context.emit(WorkflowEventType.LOOP_ITERATION, data)
            latest = await context.call(self.body, next_input, id=self.id)
            iteration += 1
            if not latest.success and (self.on_body_failure == "stop" or is_final_rejection(latest)):
                return body_failure_result(self, latest, iteration)
            results.append(latest)
            next_input = latest.output
        output = list(results) if accumulate else result_output(latest)
        attributes = {"iterations": iteration, "exited_early": finished and iteration != times}
        if finished or self.on_max == "return":
            return Result.ok(output, attributes)
        message = f"'{self.id}' reached max_iterations={iteration} before it was done"
        return Result.failed(message, "MaxIterations", output, attributes)
