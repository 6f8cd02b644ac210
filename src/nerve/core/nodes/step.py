"""StepNode: a typed Python function as a leaf."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from nerve.core.nodes.base import NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.function import FunctionNode
from nerve.core.result import Result
from nerve.core.value_codec import FunctionSignature


class StepNode(FunctionNode):
    """Calls a function with the arguments in its input; its output is the encoded return value."""

    def __init__(
        self, id: str, session: NodeRegistry | None, function: Callable[..., Any], **policy: Any
    ) -> None:
        signature = self.signature = FunctionSignature(function, f"step '{id}'")

        async def call_async(context: ExecutionContext) -> Result:
            args, kwargs = signature.decode_call(context.input)
            return Result.ok(signature.result.encode_json(await function(*args, **kwargs)))

        def call_sync(context: ExecutionContext) -> Result:
            args, kwargs = signature.decode_call(context.input)
            return Result.ok(signature.result.encode_json(function(*args, **kwargs)))

        super().__init__(
            id, session, call_async if inspect.iscoroutinefunction(function) else call_sync, **policy
        )
