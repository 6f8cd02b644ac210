"""SwitchNode: one of several cases, by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import ControlNode, bind_params, call_user_function, wrap_output_function
from nerve.core.result import Result, result_output
from nerve.core.validation import (
    describe_value,
    require_mapping,
    require_name,
    require_node,
    require_sync_callable,
)


class SwitchNode(ControlNode):
    """Executes the case that `key(input)` names, else `default`, or returns the input.

    Keys and cases are compared as strings: the key 1 selects the case "1".
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        key: Callable[[Any], str],
        cases: Mapping[str, Node],
        default: Node | None = None,
        **policy: Any,
    ) -> None:
        self.key = require_sync_callable(f"key of '{id}'", key)
        self.cases: dict[str, Node] = {}
        for name, node in require_mapping(f"cases of '{id}'", cases).items():
            if require_name(f"a case of '{id}'", str(name)) in self.cases:
                raise ValueError(f"'{id}' has two cases '{name}'; cases are compared as strings")
            self.cases[str(name)] = require_node(f"case {name!r} of '{id}'", node)
        self.default = None if default is None else require_node(f"default of '{id}'", default)
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [*self.cases.values(), *([self.default] if self.default is not None else [])]

    async def execute(self, context: ExecutionContext) -> Result:
        key = call_user_function(
            self, "key", wrap_output_function(bind_params(self.key, context)), context.input
        )
        if not isinstance(key, Hashable):
            raise ValueError(f"key of '{self.id}' must be the name of a case, got {describe_value(key)}")
        key = str(key)
        branch = self.cases.get(key, self.default)
        name = key if key in self.cases else "default"
        context.emit(
            WorkflowEventType.BRANCH_TAKEN,
            {"node_id": self.id, "branch": name if branch is not None else None, "key": key},
        )
        if branch is None:
            return Result.ok(result_output(context.input))
        return await context.call(branch, context.input, id=name)
