"""SwitchNode: one of many ways, by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from nerve.core.checks import a_decision, a_mapping, a_name, a_node, told
from nerve.core.nodes.base import Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode, ask, on_output, with_params
from nerve.core.result import Result, output_of


class SwitchNode(ControlNode):
    """Executes the case that `key(input)` names, else `default`; without it the input passes.

    Keys and cases are compared as text: the key 1 is the case "1".
    """

    def __init__(
        self,
        id: str,
        session: Names,
        key: Callable[[Any], str],
        cases: Mapping[str, Node],
        default: Node | None = None,
        **policy: Any,
    ) -> None:
        self.key = a_decision(f"key of '{id}'", key)
        self.cases: dict[str, Node] = {}
        for name, node in a_mapping(f"cases of '{id}'", cases).items():
            if a_name(f"a case of '{id}'", str(name)) in self.cases:
                raise ValueError(f"'{id}' has two cases '{name}'; cases are compared as text")
            self.cases[str(name)] = a_node(f"case {name!r} of '{id}'", node)
        self.default = None if default is None else a_node(f"default of '{id}'", default)
        super().__init__(id, session, **policy)

    def parts(self) -> Iterable[Node]:
        return [*self.cases.values(), *([self.default] if self.default is not None else [])]

    async def execute(self, context: ExecutionContext) -> Result:
        key = ask(self, "key", on_output(with_params(self.key, context)), context.input)
        if not isinstance(key, Hashable):
            raise ValueError(f"key of '{self.id}' is the name of a case, not {told(key)}")
        key = str(key)
        taken = self.cases.get(key, self.default)
        name = key if key in self.cases else "default"
        context.emit(
            "branch_taken",
            {"node_id": self.id, "branch": name if taken is not None else None, "key": key},
        )
        if taken is None:
            return Result.ok(output_of(context.input))
        return await context.call(taken, context.input, id=name)
