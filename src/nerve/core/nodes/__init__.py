"""Nodes: everything that can be executed."""

from typing import Any

from nerve.core.nodes.base import ControlNode, Node
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control import (
    BranchNode,
    GateNode,
    LoopNode,
    LoopState,
    MachineNode,
    MapNode,
    MergeNode,
    ParallelNode,
    ReduceNode,
    State,
    SwitchNode,
    WhileNode,
    WhileState,
    WorkspaceNode,
)
from nerve.core.nodes.function import FunctionNode
from nerve.core.nodes.graph import Graph
from nerve.core.nodes.mock import MockNode
from nerve.core.policy import Policy, Retry
from nerve.core.result import Result

__all__ = [
    "BashNode",
    "BranchNode",
    "ControlNode",
    "ExecutionContext",
    "FunctionNode",
    "GateNode",
    "Graph",
    "LoopNode",
    "LoopState",
    "MachineNode",
    "MapNode",
    "MergeNode",
    "MockNode",
    "Node",
    "ParallelNode",
    "Policy",
    "ReduceNode",
    "Result",
    "Retry",
    "State",
    "SwitchNode",
    "WhileNode",
    "WhileState",
    "WorkspaceNode",
]


def __getattr__(name: str) -> Any:
    """Return what a name of upstream Nerve is here, or raise an error that says what to use."""
    from nerve.upstream_names import find_upstream_name

    return find_upstream_name(__name__, name)
