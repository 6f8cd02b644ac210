"""ReduceNode: folds a list into one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, ClassVar

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import (
    ControlNode,
    as_list,
    bind_params,
    body_failure_result,
    call_user_function,
)
from nerve.core.result import Result, restore_results
from nerve.core.validation import require_sync_callable


class ReduceNode(ControlNode):
    """Folds a list with `fn(accumulated, item)`, or with a node whose input is {"acc": …, "item": …}.

    `fn` receives an item of the shape of a result, such as one of an accumulating LoopNode, as a Result.
    """

    takes_result: ClassVar[bool] = False

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        fn: Callable[[Any, Any], Any] | Node,
        initial: Any = None,
        **policy: Any,
    ) -> None:
        if not isinstance(fn, Node):
            require_sync_callable(f"fn of '{id}'", fn)
        self.fn, self.initial = fn, initial
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.fn] if isinstance(self.fn, Node) else []

    async def execute(self, context: ExecutionContext) -> Result:
        items = as_list(context.input)
        accumulated = deepcopy(self.initial)
        for index, item in enumerate(items):
            if not isinstance(self.fn, Node):
                accumulated = call_user_function(
                    self, "fn", bind_params(self.fn, context, 2), accumulated, restore_results(item)
                )
                continue
            result = await context.call(self.fn, {"acc": accumulated, "item": item}, id=self.id)
            if not result.success:
                return body_failure_result(self, result, index + 1)
            accumulated = result.output
        return Result.ok(accumulated, {"items": len(items)})
