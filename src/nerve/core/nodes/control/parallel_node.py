"""ParallelNode: several branches side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode
from nerve.core.nodes.graph import together
from nerve.core.result import Result, census

Required = int | None


class ParallelNode(ControlNode):
    """Executes every branch with the same input. One failure cancels nobody.

    It is a success if all branches are, or as many as `require` says; the census tells who was not.
    """

    def __init__(
        self, id: str, session: Names, branches: Mapping[str, Node], require: Required = None, **policy: Any
    ) -> None:
        super().__init__(id, session, **policy)
        self.branches, self.require = dict(branches), require

    async def execute(self, context: ExecutionContext) -> Result:
        async def run(name: str, node: Node, path: str) -> Result:
            return await context.call(node, context.input, id=name, path=path)

        paths = [context.take(name) for name in self.branches]
        tasks = [
            asyncio.create_task(run(name, node, path))
            for (name, node), path in zip(self.branches.items(), paths, strict=True)
        ]
        results = dict(zip(self.branches, await together(tasks), strict=True))
        attributes = {"results": results, "census": census(results)}
        return judge(self, {n: r.output for n, r in results.items()}, attributes, self.require, len(results))


def judge(
    owner: ControlNode, output: Any, attributes: dict[str, Any], require: Required, total: int
) -> Result:
    """A success if as many parts succeeded as required; the error names those that did not."""
    counts = attributes["census"]
    needed = total if require is None else require
    if counts["ok"] >= needed:
        return Result.ok(output, attributes)
    who = "; ".join(
        f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in counts["not_ok"].items()
    )
    return Result.failed(
        f"'{owner.id}': {counts['ok']} of {total} succeeded, {needed} required ({who})",
        "PartsFailed",
        output,
        attributes,
    )
