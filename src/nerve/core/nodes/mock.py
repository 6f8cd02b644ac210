"""MockNode: a leaf with predefined responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.validation import describe_value


class MockNode(Node):
    """Returns one response after the other, then repeats the last one; without responses, returns the input.

    A callable response is called with the input; an exception is a failure. `calls` lists the inputs so far.
    """

    def __init__(
        self,
        id: str | None = None,
        session: NodeRegistry | None = None,
        responses: Iterable[Any] = (),
        **policy: Any,
    ) -> None:
        if isinstance(responses, str | bytes | Mapping) or not isinstance(responses, Iterable):
            raise ValueError(
                f"responses of '{id}' must be a list of outputs, got {describe_value(responses)}"
            )
        super().__init__(id, session, **policy)
        self.responses = list(responses)
        self.calls: list[Any] = []

    async def execute(self, context: ExecutionContext) -> Result:
        self.calls.append(context.input)
        if not self.responses:
            return Result.ok(context.input)
        response = self.responses[min(len(self.calls), len(self.responses)) - 1]
        if isinstance(response, Exception):
            return Result.from_exception(response)
        try:
            return Result.of(response(context.input) if callable(response) else response)
        except Exception as error:
            return Result.from_exception(error)
