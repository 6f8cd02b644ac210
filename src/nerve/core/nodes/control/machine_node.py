"""MachineNode: named states, each with a body and a way on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nerve.core.checks import a_decision, a_mapping, a_name, a_node, told
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode, ask, at_least, with_params
from nerve.core.result import Result, output_of
from nerve.core.suggest import suggest


@dataclass(frozen=True, slots=True)
class State:
    """A body, and the state that follows: none, a name, or a function of the body's result."""

    body: Node
    next: str | Callable[[Result], str | None] | None = None


class MachineNode(ControlNode):
    """Goes from state to state, each body with the Result of the one before, until a state names no next.

    A failed body ends the machine, unless `next` is a function: it is then the handler and decides.
    """

    def __init__(
        self,
        id: str,
        session: Names,
        states: Mapping[str, State],
        start: str | None = None,
        max_transitions: int = 1000,
        **policy: Any,
    ) -> None:
        if not a_mapping(f"states of '{id}'", states):
            raise ValueError(f"MachineNode '{id}' has no states")
        self.states = dict(states)
        for name, state in self.states.items():
            a_name(f"a state of '{id}'", name)
            if not isinstance(state, State):
                raise ValueError(f"state '{name}' of '{id}' is a State(body, next), not {told(state)}")
            a_node(f"body of state '{name}' of '{id}'", state.body)
            check_next(f"next of state '{name}' of '{id}'", state.next)
        self.start = start if start is not None else next(iter(self.states))
        self.max_transitions = at_least(1, id, "max_transitions", max_transitions)
        for name in [self.start, *(s.next for s in self.states.values() if isinstance(s.next, str))]:
            self._known(name, id)
        super().__init__(id, session, **policy)

    def _known(self, name: Any, machine: str | None) -> str:
        if not isinstance(name, str) or name not in self.states:
            raise ValueError(f"machine '{machine}' has no state '{name}'{suggest(str(name), self.states)}")
        return name

    def parts(self) -> Iterable[Node]:
        return [state.body for state in self.states.values()]

    async def execute(self, context: ExecutionContext) -> Result:
        name: str | None = self.start
        visited: list[str] = []
        entered: dict[str, Any]
        result = Result.ok(output_of(context.input))
        given = context.input
        while name is not None:
            if len(visited) >= self.max_transitions:
                return Result.failed(
                    f"machine '{self.id}' reached max_transitions={self.max_transitions} in state '{name}':"
                    " look for states that lead back to each other, or raise it",
                    "MaxTransitions",
                    result.output,
                    {"states": visited},
                )
            visited.append(name)
            entered = {"node_id": self.id, "state": name, "transition": len(visited)}
            if len(visited) > 1:
                entered["previous"] = "completed" if result.success else "failed"
            context.emit("state_entered", entered)
            state = self.states[name]
            result = given = await context.call(state.body, given, id=name)
            name = self._next(context, name, state, result)
        attributes = {**result.attributes, "states": visited}
        if result.success:
            return Result.ok(result.output, attributes)
        return Result.failed(
            f"state '{visited[-1]}' failed: {result.error}", result.error_type, result.output, attributes
        )

    def _next(self, context: ExecutionContext, name: str, state: State, result: Result) -> str | None:
        if callable(state.next):
            following = ask(self, f"next of state '{name}'", with_params(state.next, context), result)
            return None if following is None else self._known(following, self.id)
        return state.next if result.success else None


def check_next(what: str, given: Any) -> None:
    if callable(given):
        a_decision(what, given)
    elif given is not None and not isinstance(given, str):
        raise ValueError(
            f"{what} is the name of a state, a function of the Result, or None, not {told(given)}"
        )
