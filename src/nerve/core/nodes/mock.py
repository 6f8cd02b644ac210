"""MockNode: a leaf with canned responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result


class MockNode(Node):
    """Gives one response after the other and then the last one again; an exception is raised as a failure.

    A callable response is called with the input. `calls` has the inputs seen so far.
    """

    def __init__(
        self,
        id: str | None = None,
        session: Names | None = None,
        responses: Iterable[Any] = (),
        **policy: Any,
    ) -> None:
        super().__init__(id, session, **policy)
        self.responses = list(responses)
        self.calls: list[Any] = []

    async def execute(self, context: ExecutionContext) -> Result:
        self.calls.append(context.input)
        if not self.responses:
            return Result.ok(context.input)
        response = self.responses[min(len(self.calls), len(self.responses)) - 1]
        if isinstance(response, Exception):
            return Result.raised(response)
        return Result.of(response(context.input) if callable(response) else response)
