"""Leaves that assert and retract facts of the session."""

from __future__ import annotations

from typing import Any, NamedTuple

from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result


class FactChanges(NamedTuple):
    """Facts to retract, by patterns, and then to assert."""

    asserted: tuple[Any, ...] = ()
    retracted: tuple[Any, ...] = ()


class AssertNode(Node):
    """Asserts its input as a fact; asserting an existing fact changes nothing."""

    async def execute(self, context: ExecutionContext) -> Result:
        await require_dataspace(context).assert_fact(context.input, by=context.run_id)
        return Result.ok(context.input)


class RetractNode(Node):
    """Retracts the facts that match its input, a pattern; its output is their number."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(len(await require_dataspace(context).retract(context.input, by=context.run_id)))


def require_dataspace(context: ExecutionContext) -> Any:
    space = getattr(context.session, "dataspace", None)
    if space is None:
        raise RuntimeError("No dataspace: the step does not belong to a session")
    return space


def fact_to_json(fact: Any) -> Any:
    """Return a record or pattern in a form that the journal can store: JSON, or a string unchanged."""
    return fact.to_json() if hasattr(fact, "to_json") else fact
