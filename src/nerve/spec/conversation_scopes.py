"""Conversations of parallel steps: which ones a step continues."""

from __future__ import annotations

from collections.abc import Iterable

from nerve.core.result import Result
from nerve.spec.scope import Scope


class ConversationScopes:
    """The scopes of branches: each has separate conversations, inherited from its dependencies.

    A graph with a single start step continues the conversations of the outer scope, and the outer scope
    continues those of the last steps.
    """

    def __init__(self, outer_scope: Scope) -> None:
        self._outer_scope = outer_scope
        self._scopes: dict[str, Scope] = {}
        self._dependencies: dict[str, list[str]] = {}

    def scope_for(self, name: str, depends_on: Iterable[str] = ()) -> Scope:
        self._dependencies[name] = list(depends_on)
        scope = self._scopes[name] = self._outer_scope.for_branch()
        return scope

    def clear(self) -> None:
        """Forget the conversations of the previous execution of these steps."""
        for scope in self._scopes.values():
            scope.threads.clear()
            scope.detached_tasks.clear()

    def inherit_threads(self, name: str) -> None:
        """Copy the conversations of the dependencies of a step; the last dependency takes precedence."""
        scope, dependencies = self._scopes[name], self._dependencies[name]
        has_single_start = sum(not after for after in self._dependencies.values()) == 1
        source_scopes = [self._scopes[up] for up in dependencies] or (
            [self._outer_scope] if has_single_start else []
        )
        for other in source_scopes:
            scope.threads.update(other.threads)
            scope.detached_tasks.update(other.detached_tasks)

    def hand_back(self, result: Result) -> Result:
        """Copy the conversations of the last steps to the outer scope; return the result unchanged."""
        inner = {up for after in self._dependencies.values() for up in after}
        for name, scope in self._scopes.items():
            if name not in inner:
                self._outer_scope.threads.update(scope.threads)
                self._outer_scope.detached_tasks.update(scope.detached_tasks)
        return result
