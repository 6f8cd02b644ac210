"""MapNode: executes a body for every item of a list, concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import ControlNode, as_list, require_at_least
from nerve.core.nodes.control.parallel_node import aggregate_results
from nerve.core.nodes.graph import gather_all
from nerve.core.nodes.workspace import share_base
from nerve.core.result import Result, census
from nerve.core.validation import require_node


class MapNode(ControlNode):
    """Executes `body` for each item, at most `max_parallel` at once; results have the order of the items.

    An input that is not a list is one item. A failure does not cancel the other items; `require` sets how
    many must succeed.
    """

    takes_result: ClassVar[bool] = False

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        body: Node,
        max_parallel: int = 5,
        require: int | None = None,
        **policy: Any,
    ) -> None:
        if require is not None:
            require_at_least(0, id, "require", require)
        self.body = require_node(f"body of '{id}'", body)
        self.max_parallel, self.require = require_at_least(1, id, "max_parallel", max_parallel), require
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [self.body]

    async def execute(self, context: ExecutionContext) -> Result:
        items = as_list(context.input)
        if len(items) > 1 and self.max_parallel > 1:
            context = await share_base(context, [self.body], f"{context.path}/~base")
        slots = asyncio.Semaphore(self.max_parallel)

        async def process(index: int, item: Any, path: str) -> Result:
            item_data = {"node_id": self.id, "index": index}
            async with slots:
                context.emit(WorkflowEventType.MAP_ITEM_START, {**item_data, "total": len(items)})
                result = await context.call(self.body, item, path=path)
                context.emit(WorkflowEventType.MAP_ITEM_COMPLETE, {**item_data, "success": result.success})
                return result

        # Assign paths in the order of the items, not of their execution, so that replay is deterministic.
        name = self.id or "item"
        results = await gather_all(
            [process(i, item, context.next_path(name)) for i, item in enumerate(items)]
        )
        attributes = {"results": results, "census": census(results)}
        return aggregate_results(self, [result.output for result in results], attributes, self.require)
