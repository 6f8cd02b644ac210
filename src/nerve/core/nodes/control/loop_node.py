"""LoopNode: repeats a body a number of times, or until a condition is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import (
    OnBodyFailure,
    OnMax,
    RepeatingNode,
    bind_params,
    evaluate_user_condition,
    require_at_least,
)
from nerve.core.result import Result, result_output
from nerve.core.validation import require_sync_callable
from nerve.lazy_dataclass import dataclass

DEFAULT_MAX_ITERATIONS = 100
"""The default of max_iterations for a loop without `times`."""


@dataclass(slots=True)
class LoopState:
    """The argument of an `until` condition: the number of iterations, the last result, and all results."""

    iteration: int
    result: Result
    accumulated: list[Result] = field(default_factory=list)


class LoopNode(RepeatingNode):
    """Executes `body` `times` times, or until `until(state)` is true, each time with the previous output.

    The output is the last output, or with `accumulate=True` the list of all Results. `max_iterations` is 100
    by default if `times` is not set; `on_max` and `on_body_failure` are those of a WhileNode.
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        body: Node,
        times: int | None = None,
        until: Callable[[LoopState], bool] | None = None,
        max_iterations: int | None = None,
        accumulate: bool = False,
        on_max: OnMax = "return",
        on_body_failure: OnBodyFailure = "stop",
        **policy: Any,
    ) -> None:
        if times is None and until is None:
            raise ValueError(f"LoopNode '{id}' needs times or until, otherwise it never ends")
        if times is not None:
            require_at_least(0, id, "times", times)
        if until is not None:
            require_sync_callable(f"until of '{id}'", until)
        self.times, self.until, self.accumulate = times, until, accumulate
        if max_iterations is None:
            max_iterations = DEFAULT_MAX_ITERATIONS if times is None else times
        super().__init__(id, session, body, max_iterations, on_max, on_body_failure, **policy)

    @property
    def iteration_limit(self) -> int:
        """The maximum number of iterations."""
        return self.max_iterations if self.times is None else min(self.times, self.max_iterations)

    async def execute(self, context: ExecutionContext) -> Result:
        state = LoopState(0, Result.ok(result_output(context.input)))

        def is_finished(iteration: int, latest: Any) -> bool:
            if iteration == self.times:
                return True
            if self.until is None or not iteration:
                return False
            state.iteration, state.result = iteration, latest
            return evaluate_user_condition(self, "until", bind_params(self.until, context), state)

        return await self.repeat_body(
            context, self.iteration_limit, is_finished, state.accumulated, self.times, self.accumulate
        )
