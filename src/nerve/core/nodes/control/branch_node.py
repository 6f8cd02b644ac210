"""BranchNode: one of two ways, by a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nerve.core.checks import a_decision, a_node
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode, holds, on_output, with_params
from nerve.core.result import Result, output_of


class BranchNode(ControlNode):
    """Executes `then_branch` if `condition(input)` holds, else `else_branch`; without it the input passes."""

    def __init__(
        self,
        id: str,
        session: Names,
        condition: Callable[[Any], bool],
        then_branch: Node,
        else_branch: Node | None = None,
        **policy: Any,
    ) -> None:
        self.condition = a_decision(f"condition of '{id}'", condition)
        self.then_branch = a_node(f"then_branch of '{id}'", then_branch)
        self.else_branch = None if else_branch is None else a_node(f"else_branch of '{id}'", else_branch)
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [branch for branch in (self.then_branch, self.else_branch) if branch is not None]

    async def execute(self, context: ExecutionContext) -> Result:
        wanted = holds(self, "condition", on_output(with_params(self.condition, context)), context.input)
        taken = self.then_branch if wanted else self.else_branch
        name = "then" if wanted else "else"
        context.emit("branch_taken", {"node_id": self.id, "branch": name if taken is not None else None})
        if taken is None:
            return Result.ok(output_of(context.input))
        return await context.call(taken, context.input, id=name)
