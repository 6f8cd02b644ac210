"""LoopNode: the body a number of times, or until a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode, OnBodyFailure, OnMax, ask, body_failed, check_max
from nerve.core.result import Result


@dataclass(slots=True)
class LoopState:
    """What an until condition sees after an iteration."""

    iteration: int
    result: Result
    accumulated: list[Result] = field(default_factory=list)


class LoopNode(ControlNode):
    """Executes `body` `times` times, or until `until(state)` holds, each time with the output of the time before.

    The output is that of the last time, with `accumulate=True` the list of all Results.
    """

    def __init__(
        self,
        id: str,
        session: Names,
        body: Node,
        times: int | None = None,
        until: Callable[[LoopState], bool] | None = None,
        max_iterations: int = 100,
        accumulate: bool = False,
        on_max: OnMax = "return",
        on_body_failure: OnBodyFailure = "stop",
        **policy: Any,
    ) -> None:
        if times is None and until is None:
            raise ValueError(f"LoopNode '{id}' needs times or until, otherwise it has no end")
        super().__init__(id, session, **policy)
        self.body, self.times, self.until = body, times, until
        self.max_iterations = check_max(self, max_iterations)
        self.accumulate, self.on_max, self.on_body_failure = accumulate, on_max, on_body_failure

    @property
    def bound(self) -> int:
        return self.max_iterations if self.times is None else min(self.times, self.max_iterations)

    async def execute(self, context: ExecutionContext) -> Result:
        state = LoopState(0, Result.ok(context.input))
        finished = self.times == 0
        while not finished and state.iteration < self.bound:
            context.emit(
                "loop_iteration", {"loop_id": self.id, "iteration": state.iteration, "max": self.bound}
            )
            given = context.input if state.iteration == 0 else state.result.output
            state.result = await context.call(self.body, given, id=self.id)
            state.iteration += 1
            if not state.result.success and self.on_body_failure == "stop":
                return body_failed(self, state.result, state.iteration)
            state.accumulated.append(state.result)
            finished = state.iteration == self.times
            if self.until is not None and not finished:
                finished = bool(ask(self, "until", self.until, state))
        return self._result(state, finished)

    def _result(self, state: LoopState, finished: bool) -> Result:
        output = list(state.accumulated) if self.accumulate else state.result.output
        attributes = {
            "iterations": state.iteration,
            "exited_early": finished and state.iteration < self.max_iterations,
        }
        if finished or self.on_max == "return":
            return Result.ok(output, attributes)
        return Result.failed(
            f"'{self.id}' reached max_iterations={self.max_iterations} before it was done",
            "MaxIterations",
            output,
            attributes,
        )
