"""Workflows that are not among the names of a session: one of a single node, and one that nobody has."""

from __future__ import annotations

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.workflow import Workflow


class SingleNodeWorkflow(Workflow):
    """A node or a graph that is started by its own name. The node stays what it is."""

    def __init__(self, node: Node, session: NodeRegistry) -> None:
        super().__init__(str(node.id), session, body=node)

    def _register(self, id: str, session: NodeRegistry) -> None:
        pass


class MissingWorkflow(Workflow):
    """In the place of a workflow that nobody has here: its runs can be looked at, and do not go on."""

    def __init__(self, name: str, session: NodeRegistry) -> None:
        super().__init__(name, session, missing_body)

    def _register(self, id: str, session: NodeRegistry) -> None:
        pass


async def missing_body(context: WorkflowContext) -> None:
    raise NotImplementedError
