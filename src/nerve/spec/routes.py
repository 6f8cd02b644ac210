"""Routes: where a machine of a spec goes from each of its states."""

from __future__ import annotations

from collections.abc import Callable

from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.machine_node import MachineNode
from nerve.core.result import Result, is_final, is_rejected
from nerve.spec import models
from nerve.spec.nodes import Inline
from nerve.spec.scope import Scope
from nerve.spec.values import holds


class Routes:
    """The ways between the states of one machine in one run."""

    def __init__(self, spec: models.Machine, scope: Scope) -> None:
        self._spec, self._scope = spec, scope
        self._remembered: Result | None = None

    def after(self, state: models.State) -> Callable[[Result], str | None]:
        return lambda result: self._next(state, result)

    def _next(self, state: models.State, result: Result) -> str | None:
        scope = self._scope
        if scope.way.leaving:
            scope.way.leaving = False
            return scope.way.target
        if not result.success:
            if is_final(result) or (state.on_error is None and state.after_failure == "fail"):
                return None
            if state.on_error is not None:
                return state.on_error
            if state.after_failure == "remember":
                if is_rejected(result):
                    return None
                self._remembered = failed_in(state.name, result)
        sight = scope.sight(given=result.output)
        ways = (way.to for way in state.next if way.when is None or holds(way.when, sight))
        return next(ways, None)

    def ending(self, machine: MachineNode) -> Inline:
        """The machine; a failure it went on from and remembered is its outcome in the end."""
        self._remembered = None
        return Ending(machine, self)

    def outcome(self, result: Result) -> Result:
        return self._remembered if self._remembered is not None and result.success else result


class Ending(Inline):
    """A machine, and what is still to be said when it is over."""

    def __init__(self, machine: MachineNode, routes: Routes) -> None:
        super().__init__(machine.id)
        self.machine, self.routes = machine, routes

    async def execute(self, context: ExecutionContext) -> Result:
        return self.routes.outcome(await self.machine.execute(context))


def failed_in(name: str, result: Result) -> Result:
    return Result.failed(
        f"state '{name}' failed: {result.error}", result.error_type, result.output, result.attributes
    )
