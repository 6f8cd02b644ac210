"""MapNode: the body for every item of a list, several at a time."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode
from nerve.core.nodes.control.parallel_node import Required, judge
from nerve.core.nodes.graph import together
from nerve.core.result import Result, census


class MapNode(ControlNode):
    """Executes `body` for each item, at most `max_parallel` at once; results come in the order of the items.

    An input that is no list is one item. One failure cancels nobody; `require` says how many must succeed.
    """

    takes_result: ClassVar[bool] = False

    def __init__(
        self,
        id: str,
        session: Names,
        body: Node,
        max_parallel: int = 5,
        require: Required = None,
        **policy: Any,
    ) -> None:
        super().__init__(id, session, **policy)
        if max_parallel < 1:
            raise ValueError(f"max_parallel of '{id}' must be at least 1, got {max_parallel}")
        self.body, self.max_parallel, self.require = body, max_parallel, require

    async def execute(self, context: ExecutionContext) -> Result:
        items = context.input if isinstance(context.input, list) else [context.input]
        slots = asyncio.Semaphore(self.max_parallel)
        name = self.id or "map"

        async def process(index: int, item: Any, path: str) -> Result:
            async with slots:
                context.emit("map_item_start", {"node_id": self.id, "index": index, "total": len(items)})
                result = await context.call(self.body, item, id=name, path=path)
                context.emit(
                    "map_item_complete", {"node_id": self.id, "index": index, "success": result.success}
                )
                return result

        paths = [context.take(name) for _ in items]
        tasks = [
            asyncio.create_task(process(i, item, path))
            for i, (item, path) in enumerate(zip(items, paths, strict=True))
        ]
        results = await together(tasks)
        attributes = {"results": results, "census": census(results)}
        return judge(self, [r.output for r in results], attributes, self.require, len(results))
