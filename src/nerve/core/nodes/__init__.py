"""Nodes: everything that can be executed."""

from nerve.core.nodes.base import ControlNode, Node
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.function import FunctionNode
from nerve.core.nodes.graph import Graph
from nerve.core.nodes.mock import MockNode
from nerve.core.policy import Policy, Retry
from nerve.core.result import Result

__all__ = [
    "BashNode",
    "ControlNode",
    "ExecutionContext",
    "FunctionNode",
    "Graph",
    "MockNode",
    "Node",
    "Policy",
    "Result",
    "Retry",
]
