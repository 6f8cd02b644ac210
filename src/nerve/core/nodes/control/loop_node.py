"""LoopNode: repeats a body a number of times, or until a condition is true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import (
    ControlNode,
    OnBodyFailure,
    OnMax,
    bind_params,
    body_failure_result,
    check_loop,
    ends_loop,
    evaluate_user_condition,
    loop_result,
    require_at_least,
)
from nerve.core.result import Result, result_output
from nerve.core.validation import require_sync_callable

DEFAULT_MAX_ITERATIONS = 100
"""The default of max_iterations for a loop without `times`."""


@dataclass(slots=True)
class LoopState:
    """The argument of an `until` condition: the number of iterations, the last result, and all results."""

    iteration: int
    result: Result
    accumulated: list[Result] = field(default_factory=list)


class LoopNode(ControlNode):
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
        check_loop(id, body, on_max, on_body_failure)
        if times is not None:
            require_at_least(0, id, "times", times)
        if until is not None:
            require_sync_callable(f"until of '{id}'", until)
        self.body, self.times, self.until = body, times, until
        if max_iterations is None:
            max_iterations = DEFAULT_MAX_ITERATIONS if times is None else times
        self.max_iterations = require_at_least(0, id, "max_iterations", max_iterations)
        self.accumulate, self.on_max, self.on_body_failure = accumulate, on_max, on_body_failure
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.body]

    @property
    def iteration_limit(self) -> int:
        """The maximum number of iterations."""
        return self.max_iterations if self.times is None else min(self.times, self.max_iterations)

    async def execute(self, context: ExecutionContext) -> Result:
        state, next_input = LoopState(0, Result.ok(result_output(context.input))), context.input
        while not (finished := self._is_finished(context, state)) and state.iteration < self.iteration_limit:
            context.emit(
                "loop_iteration",
                {"loop_id": self.id, "iteration": state.iteration, "max": self.iteration_limit},
            )
            state.result = await context.call(self.body, next_input, id=self.id)
            state.iteration += 1
            if ends_loop(state.result, self.on_body_failure):
                return body_failure_result(self, state.result, state.iteration)
            state.accumulated.append(state.result)
            next_input = state.result.output
        output = list(state.accumulated) if self.accumulate else state.result.output
        early = state.iteration != self.times
        return loop_result(self, output, state.iteration, finished, self.on_max, early)

    def _is_finished(self, context: ExecutionContext, state: LoopState) -> bool:
        if state.iteration == self.times:
            return True
        if self.until is None or not state.iteration:
            return False
        return evaluate_user_condition(self, "until", bind_params(self.until, context), state)
