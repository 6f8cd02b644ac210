"""WhileNode: repeats a body while a condition is true."""

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
    wrap_output_function,
)
from nerve.core.result import Result, result_output
from nerve.core.validation import require_sync_callable


@dataclass(slots=True)
class WhileState:
    """The argument of a condition: `current_value` is the input, then the output of the last iteration."""

    iteration: int
    current_value: Any
    history: list[Result] = field(default_factory=list)


class WhileNode(ControlNode):
    """Executes `body` while `condition(state)` is true, each time with the previous output.

    At `max_iterations` it returns the last output (with `exited_early` false), or fails if
    `on_max="fail"`. A failing body stops it, unless `on_body_failure="continue"`.
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        condition: Callable[[WhileState], bool],
        body: Node,
        max_iterations: int = 100,
        on_max: OnMax = "return",
        on_body_failure: OnBodyFailure = "stop",
        **policy: Any,
    ) -> None:
        check_loop(id, body, on_max, on_body_failure)
        self.condition, self.body = require_sync_callable(f"condition of '{id}'", condition), body
        self.max_iterations = require_at_least(0, id, "max_iterations", max_iterations)
        self.on_max, self.on_body_failure = on_max, on_body_failure
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.body]

    async def execute(self, context: ExecutionContext) -> Result:
        state, latest, next_input = WhileState(0, None), context.input, context.input
        while (
            should_continue := self._should_continue(context, state, latest)
        ) and state.iteration < self.max_iterations:
            context.emit(
                "loop_iteration",
                {"loop_id": self.id, "iteration": state.iteration, "max": self.max_iterations},
            )
            result = await context.call(self.body, next_input, id=self.id)
            state.iteration += 1
            if ends_loop(result, self.on_body_failure):
                return body_failure_result(self, result, state.iteration)
            state.history.append(result)
            latest, next_input = result, result.output
        return loop_result(self, result_output(next_input), state.iteration, not should_continue, self.on_max)

    def _should_continue(self, context: ExecutionContext, state: WhileState, latest: Any) -> bool:
        def update_state(value: Any) -> WhileState:
            state.current_value = value
            return state

        return evaluate_user_condition(
            self,
            "condition",
            wrap_output_function(bind_params(self.condition, context), update_state),
            latest,
        )
