"""WhileNode: the body again, while a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.checks import a_decision
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import (
    ControlNode,
    OnBodyFailure,
    OnMax,
    at_least,
    body_failed,
    check_loop,
    ends_loop,
    holds,
    loop_over,
    on_output,
    with_params,
)
from nerve.core.result import Result, output_of


@dataclass(slots=True)
class WhileState:
    """What a while condition sees: `current_value` is the input, later the output of the last iteration."""

    iteration: int
    current_value: Any
    history: list[Result] = field(default_factory=list)


class WhileNode(ControlNode):
    """Executes `body` while `condition(state)` holds, each time with the output of the time before.

    At `max_iterations` it returns what it has (`exited_early` is false then), or fails with
    `on_max="fail"`. A failing body stops it, unless `on_body_failure="continue"`.
    """

    def __init__(
        self,
        id: str,
        session: Names,
        condition: Callable[[WhileState], bool],
        body: Node,
        max_iterations: int = 100,
        on_max: OnMax = "return",
        on_body_failure: OnBodyFailure = "stop",
        **policy: Any,
    ) -> None:
        check_loop(id, body, on_max, on_body_failure)
        self.condition, self.body = a_decision(f"condition of '{id}'", condition), body
        self.max_iterations = at_least(0, id, "max_iterations", max_iterations)
        self.on_max, self.on_body_failure = on_max, on_body_failure
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.body]

    async def execute(self, context: ExecutionContext) -> Result:
        state, latest, given = WhileState(0, None), context.input, context.input
        while (wanted := self._wanted(context, state, latest)) and state.iteration < self.max_iterations:
            context.emit(
                "loop_iteration",
                {"loop_id": self.id, "iteration": state.iteration, "max": self.max_iterations},
            )
            result = await context.call(self.body, given, id=self.id)
            state.iteration += 1
            if ends_loop(result, self.on_body_failure):
                return body_failed(self, result, state.iteration)
            state.history.append(result)
            latest, given = result, result.output
        return loop_over(self, output_of(given), state.iteration, not wanted, self.on_max)

    def _wanted(self, context: ExecutionContext, state: WhileState, latest: Any) -> bool:
        def put(seen: Any) -> WhileState:
            state.current_value = seen
            return state

        return holds(self, "condition", on_output(with_params(self.condition, context), put), latest)
