"""Step: a function whose calls in a workflow are recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from nerve.core.nodes.attempt import CURRENT_WORKFLOW
from nerve.core.nodes.step import StepNode

P = ParamSpec("P")
R = TypeVar("R")


class Step(Generic[P, R]):
    """A typed step. In a workflow, a call is recorded and its value awaited; elsewhere, it is the function.

    `function` is the function itself, with its own types.
    """

    def __init__(self, function: Callable[..., Any], node: StepNode) -> None:
        update_wrapper(self, function)
        self.function, self.node = function, node

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Call the step; TypeError for wrong arguments, before anything is recorded."""
        context = CURRENT_WORKFLOW.get()
        if context is None:
            value: Awaitable[R] = self.function(*args, **kwargs)
            return value
        call: Awaitable[R] = context.run_step(self.node, self.node.signature.encode_arguments(args, kwargs))
        return call

    def __repr__(self) -> str:
        return f"Step(id={self.node.id!r})"
