"""Leaves that change the dataspace of the session."""

from __future__ import annotations

from typing import Any

from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result


class AssertNode(Node):
    """Asserts the fact it is given; asserting it again changes nothing."""

    async def execute(self, context: ExecutionContext) -> Result:
        await require_dataspace(context).assert_fact(context.input, by=context.run_id)
        return Result.ok(context.input)


class RetractNode(Node):
    """Takes back the facts that fit the pattern it is given; gives how many there were."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(len(await require_dataspace(context).retract(context.input, by=context.run_id)))


def require_dataspace(context: ExecutionContext) -> Any:
    space = getattr(context.session, "dataspace", None)
    if space is None:
        raise RuntimeError("there is no dataspace: the step belongs to no session")
    return space


def fact_to_json(fact: Any) -> Any:
    """A record or a pattern as the journal can keep it: its JSON form, or its text as it is."""
    return fact.to_json() if hasattr(fact, "to_json") else fact
