"""Talks: which conversations go on where steps run side by side."""

from __future__ import annotations

from collections.abc import Iterable

from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.spec.nodes import Inline, Step
from nerve.spec.scope import Scope


class Talks:
    """The scopes of branches: each has conversations of its own, begun by the steps that it depends on.

    A graph with one beginning goes on with the conversations around it, and what is around it goes on
    with those of its ends.
    """

    def __init__(self, around: Scope) -> None:
        self._around = around
        self._scopes: dict[str, Scope] = {}
        self._after: dict[str, list[str]] = {}

    def of(self, name: str, depends_on: Iterable[str] = ()) -> Scope:
        self._after[name] = list(depends_on)
        scope = self._scopes[name] = self._around.beside()
        return scope

    def heir(self, step: Step, scope: Scope) -> Heir:
        return Heir(step, scope, self)

    def begin(self) -> None:
        """Forget what was said when these steps were last entered."""
        for scope in self._scopes.values():
            scope.threads.clear()
            scope.talking.clear()

    def inherit(self, name: str) -> None:
        """A step goes on with the conversations of those before it, the last one first."""
        scope, before = self._scopes[name], self._after[name]
        alone = sum(not after for after in self._after.values()) == 1
        heard = [self._scopes[up] for up in before] or ([self._around] if alone else [])
        for other in heard:
            scope.threads.update(other.threads)
            scope.talking.update(other.talking)

    def end(self, result: Result) -> Result:
        """What comes after all steps goes on with the conversations of the last of them."""
        inner = {up for after in self._after.values() for up in after}
        for name, scope in self._scopes.items():
            if name not in inner:
                self._around.threads.update(scope.threads)
                self._around.talking.update(scope.talking)
        return result


class Heir(Inline):
    """A step of a graph, with the conversations that it goes on with."""

    def __init__(self, step: Step, scope: Scope, talks: Talks) -> None:
        super().__init__(step.id)
        self.step, self.scope, self.talks = step, scope, talks

    async def execute(self, context: ExecutionContext) -> Result:
        self.talks.inherit(self.step.id or "")
        return await self.step.execute(context)
