"""MachineNode: a state machine of named states, each with a body and a next state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import ControlNode, bind_params, call_user_function, require_at_least
from nerve.core.result import Result, result_output
from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import (
    describe_value,
    require_mapping,
    require_name,
    require_node,
    require_sync_callable,
)
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """A body, and the next state: None, a name, or a function of the result of the body."""

    body: Node
    next: str | Callable[[Result], str | None] | None = None


class MachineNode(ControlNode):
    """Executes one state after the other, each with the Result of the previous one, until `next` is None.

    A failed body ends the machine, unless `next` is a function, which then handles the failure.
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        states: Mapping[str, State],
        start: str | None = None,
        max_transitions: int = 1000,
        **policy: Any,
    ) -> None:
        if not require_mapping(f"states of '{id}'", states):
            raise ValueError(f"MachineNode '{id}' has no states")
        self.states = dict(states)
        for name, state in self.states.items():
            require_name(f"a state of '{id}'", name)
            if not isinstance(state, State):
                raise ValueError(
                    f"State '{name}' of '{id}' must be a State(body, next), got {describe_value(state)}"
                )
            require_node(f"body of state '{name}' of '{id}'", state.body)
            what = f"next of state '{name}' of '{id}'"
            if callable(state.next):
                require_sync_callable(what, state.next)
            elif state.next is not None and not isinstance(state.next, str):
                raise ValueError(
                    f"{what} must be the name of a state, a function of the Result, or None,"
                    f" got {describe_value(state.next)}"
                )
        self.start = start if start is not None else next(iter(self.states))
        self.max_transitions = require_at_least(1, id, "max_transitions", max_transitions)
        for name in [self.start, *(s.next for s in self.states.values() if isinstance(s.next, str))]:
            self._require_state(name, id)
        super().__init__(id, session, **policy)

    def _require_state(self, name: Any, machine: str | None) -> str:
        if not isinstance(name, str) or name not in self.states:
            raise ValueError(
                f"Unknown state '{name}' of machine '{machine}'{did_you_mean_hint(str(name), self.states)}"
            )
        return name

    def parts(self) -> Iterable[Node]:
        return [state.body for state in self.states.values()]

    async def execute(self, context: ExecutionContext) -> Result:
        name: str | None = self.start
        visited: list[str] = []
        event_data: dict[str, Any]
        result = Result.ok(result_output(context.input))
        next_input = context.input
        while name is not None:
            if len(visited) >= self.max_transitions:
                return Result.failed(
                    f"machine '{self.id}' reached max_transitions={self.max_transitions} in state '{name}':"
                    " check for states that form a cycle, or raise max_transitions",
                    "MaxTransitions",
                    result.output,
                    {"states": visited},
                )
            visited.append(name)
            event_data = {"node_id": self.id, "state": name, "transition": len(visited)}
            if len(visited) > 1:
                event_data["previous"] = "completed" if result.success else "failed"
            context.emit(WorkflowEventType.STATE_ENTERED, event_data)
            state = self.states[name]
            result = next_input = await context.call(state.body, next_input, id=name)
            name = self._next_state(context, name, state, result)
        attributes = {**result.attributes, "states": visited}
        if result.success:
            return Result.ok(result.output, attributes)
        return Result.failed(
            f"state '{visited[-1]}' failed: {result.error}", result.error_type, result.output, attributes
        )

    def _next_state(self, context: ExecutionContext, name: str, state: State, result: Result) -> str | None:
        if callable(state.next):
            following = call_user_function(
                self, f"next of state '{name}'", bind_params(state.next, context), result
            )
            return None if following is None else self._require_state(following, self.id)
        return state.next if result.success else None
