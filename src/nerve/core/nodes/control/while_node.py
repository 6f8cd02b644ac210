"""WhileNode: repeats a body while a condition is true."""

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
    wrap_output_function,
)
from nerve.core.result import Result
from nerve.core.validation import require_sync_callable
from nerve.lazy_dataclass import dataclass


@dataclass(slots=True)
class WhileState:
    """The argument of a condition: `current_value` is the input, then the output of the last iteration."""

    iteration: int
    current_value: Any
    history: list[Result] = field(default_factory=list)


class WhileNode(RepeatingNode):
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
        self.condition = require_sync_callable(f"condition of '{id}'", condition)
        super().__init__(id, session, body, max_iterations, on_max, on_body_failure, **policy)

    async def execute(self, context: ExecutionContext) -> Result:
        state = WhileState(0, None)

        def update_state(value: Any) -> WhileState:
            state.current_value = value
            return state

        condition = wrap_output_function(bind_params(self.condition, context), update_state)

        def is_finished(iteration: int, latest: Any) -> bool:
            state.iteration = iteration
            return not evaluate_user_condition(self, "condition", condition, latest)

        return await self.repeat_body(context, self.max_iterations, is_finished, state.history)
