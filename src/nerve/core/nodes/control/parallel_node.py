"""ParallelNode: several branches side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode, at_least, named_nodes
from nerve.core.nodes.graph import together
from nerve.core.result import Result, census, first_rejection, is_final


class ParallelNode(ControlNode):
    """Executes every branch with the same input. One failure cancels nobody.

    It is a success if all branches are, or as many as `require` says; the census tells who was not.
    """

    def __init__(
        self, id: str, session: Names, branches: Mapping[str, Node], require: int | None = None, **policy: Any
    ) -> None:
        self.branches: dict[str, Node] = named_nodes(id, "branches", branches)
        if require is not None and at_least(0, id, "require", require) > len(branches):
            raise ValueError(f"require of '{id}' must be from 0 to {len(branches)}, got {require}")
        self.require = require
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return self.branches.values()

    async def execute(self, context: ExecutionContext) -> Result:
        made = [context.call(node, context.input, id=name) for name, node in self.branches.items()]
        results = dict(zip(self.branches, await together(made), strict=True))
        outputs = {name: result.output for name, result in results.items()}
        return judge(self, outputs, {"results": results, "census": census(results)}, self.require)


def judge(owner: ControlNode, output: Any, attributes: dict[str, Any], require: int | None) -> Result:
    """A success if as many parts succeeded as required; else the error names the others, and one reason.

    A rejection in a part is one of the whole, however many were required.
    """
    counts, results = attributes["census"], attributes["results"]
    total = len(results)
    parts = list(results.values() if isinstance(results, Mapping) else results)
    done = sum(result.success for result in parts)
    needed = total if require is None else require
    rejected = first_rejection(parts)
    if done >= needed and not (rejected and is_final(rejected)):
        return Result.ok(output, attributes)
    others = [f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in counts["not_ok"].items()]
    who = f" ({'; '.join(others)})" if others else ""
    too_few = f", {needed} required" if done < needed else ""
    return Result.failed(
        f"'{owner.id}': {done} of {total} succeeded{too_few}{who}{cause(results)}",
        rejected.error_type if rejected else "PartsFailed",
        output,
        attributes,
    )


def cause(results: Mapping[str, Result] | Sequence[Result]) -> str:
    """Why the first of the parts that did not succeed did not."""
    named = results.items() if isinstance(results, Mapping) else enumerate(results)
    return next((f". {name}: {result.error}" for name, result in named if not result.success), "")
