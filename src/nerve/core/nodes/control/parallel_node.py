"""ParallelNode: executes several branches concurrently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import ControlNode, require_at_least, require_named_nodes
from nerve.core.nodes.graph import gather_all
from nerve.core.nodes.workspace import share_base
from nerve.core.result import Result, census, first_rejection, is_final_rejection


class ParallelNode(ControlNode):
    """Executes every branch with the same input. A failure does not cancel the other branches.

    It succeeds if all branches succeed, or at least `require` of them; the census names the others.
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        branches: Mapping[str, Node],
        require: int | None = None,
        **policy: Any,
    ) -> None:
        self.branches: dict[str, Node] = require_named_nodes(id, "branches", branches)
        if require is not None and require_at_least(0, id, "require", require) > len(branches):
            raise ValueError(f"require of '{id}' must be from 0 to {len(branches)}, got {require}")
        self.require = require
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return self.branches.values()

    async def execute(self, context: ExecutionContext) -> Result:
        if len(self.branches) > 1:
            context = await share_base(context, self.branches.values(), f"{context.path}/~base")
        calls = [context.call(node, context.input, id=name) for name, node in self.branches.items()]
        results = dict(zip(self.branches, await gather_all(calls), strict=True))
        outputs = {name: result.output for name, result in results.items()}
        return aggregate_results(self, outputs, {"results": results, "census": census(results)}, self.require)


def aggregate_results(
    owner: ControlNode, output: Any, attributes: dict[str, Any], require: int | None
) -> Result:
    """Return a success if enough parts succeeded, else a failure that names the others and the first error.

    A rejection in any part rejects the whole, whatever `require` says.
    """
    counts, results = attributes["census"], attributes["results"]
    total = len(results)
    parts = list(results.values() if isinstance(results, Mapping) else results)
    succeeded = sum(result.success for result in parts)
    needed = total if require is None else require
    rejected = first_rejection(parts)
    if succeeded >= needed and not (rejected and is_final_rejection(rejected)):
        return Result.ok(output, attributes)
    others = [f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in counts["not_ok"].items()]
    failed = f" ({'; '.join(others)})" if others else ""
    too_few = f", {needed} required" if succeeded < needed else ""
    return Result.failed(
        f"'{owner.id}': {succeeded} of {total} succeeded{too_few}{failed}{first_failure_text(results)}",
        rejected.error_type if rejected else "PartsFailed",
        output,
        attributes,
    )


def first_failure_text(results: Mapping[str, Result] | Sequence[Result]) -> str:
    """Return the error of the first part that did not succeed, as the end of a message."""
    named_results = results.items() if isinstance(results, Mapping) else enumerate(results)
    return next((f". {name}: {result.error}" for name, result in named_results if not result.success), "")
