"""Workflows that are not registered: one of a single node, and a placeholder for missing code."""

from __future__ import annotations

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.workflow import Workflow


class SingleNodeWorkflow(Workflow):
    """A node or graph that is started by its own name, without being registered as a workflow."""

    def __init__(self, node: Node, session: NodeRegistry) -> None:
        super().__init__(str(node.id), session, body=node)

    def _register(self, id: str, session: NodeRegistry) -> None:
        pass


class MissingWorkflow(Workflow):
    """Placeholder for a workflow that is not in the session: its runs can be read, but not resumed."""

    def __init__(self, name: str, session: NodeRegistry) -> None:
        super().__init__(name, session, missing_body)

    def _register(self, id: str, session: NodeRegistry) -> None:
        pass


async def missing_body(context: WorkflowContext) -> None:
    raise NotImplementedError
