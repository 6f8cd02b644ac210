"""Workflows that are not among the names of a session: one of a single node, and one that nobody has."""

from __future__ import annotations

from nerve.core.nodes.base import Names, Node
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.workflow import Workflow


class OneStep(Workflow):
    """A node or a graph that is started by its own name. The node stays what it is."""

    def __init__(self, node: Node, session: Names) -> None:
        super().__init__(str(node.id), session, body=node)

    def _register(self, id: str, session: Names) -> None:
        pass


class Absent(Workflow):
    """In the place of a workflow that nobody has here: its runs can be looked at, and do not go on."""

    def __init__(self, name: str, session: Names) -> None:
        super().__init__(name, session, nothing)

    def _register(self, id: str, session: Names) -> None:
        pass


async def nothing(context: WorkflowContext) -> None:
    raise NotImplementedError
