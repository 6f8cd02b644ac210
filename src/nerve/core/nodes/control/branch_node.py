"""BranchNode: one of two branches, by a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import (
    ControlNode,
    bind_params,
    evaluate_user_condition,
    wrap_output_function,
)
from nerve.core.result import Result, result_output
from nerve.core.validation import require_node, require_sync_callable


class BranchNode(ControlNode):
    """Executes `then_branch` if `condition(input)` is true, else `else_branch`, or returns the input."""

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        condition: Callable[[Any], bool],
        then_branch: Node,
        else_branch: Node | None = None,
        **policy: Any,
    ) -> None:
        self.condition = require_sync_callable(f"condition of '{id}'", condition)
        self.then_branch = require_node(f"then_branch of '{id}'", then_branch)
        self.else_branch = (
            None if else_branch is None else require_node(f"else_branch of '{id}'", else_branch)
        )
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [branch for branch in (self.then_branch, self.else_branch) if branch is not None]

    async def execute(self, context: ExecutionContext) -> Result:
        is_met = evaluate_user_condition(
            self, "condition", wrap_output_function(bind_params(self.condition, context)), context.input
        )
        branch = self.then_branch if is_met else self.else_branch
        name = "then" if is_met else "else"
        context.emit(
            WorkflowEventType.BRANCH_TAKEN,
            {"node_id": self.id, "branch": name if branch is not None else None},
        )
        if branch is None:
            return Result.ok(result_output(context.input))
        return await context.call(branch, context.input, id=name)
