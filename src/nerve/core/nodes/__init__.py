"""Nodes: everything that can be executed."""

from functools import partial

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
from nerve.upstream_names import find_upstream_name

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

__getattr__ = partial(find_upstream_name, __name__)
