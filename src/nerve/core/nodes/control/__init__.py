"""Control nodes: loops, branches, fan-out, gates and state machines, built on the public API."""

from nerve.core.nodes.base import ControlNode
from nerve.core.nodes.control.branch_node import BranchNode
from nerve.core.nodes.control.gate_node import GateNode
from nerve.core.nodes.control.loop_node import LoopNode, LoopState
from nerve.core.nodes.control.machine_node import MachineNode, State
from nerve.core.nodes.control.map_node import MapNode
from nerve.core.nodes.control.parallel_node import ParallelNode
from nerve.core.nodes.control.reduce_node import ReduceNode
from nerve.core.nodes.control.switch_node import SwitchNode
from nerve.core.nodes.control.while_node import WhileNode, WhileState
from nerve.core.nodes.control.workspace_node import MergeNode, WorkspaceNode

__all__ = [
    "BranchNode",
    "ControlNode",
    "GateNode",
    "LoopNode",
    "LoopState",
    "MachineNode",
    "MapNode",
    "MergeNode",
    "ParallelNode",
    "ReduceNode",
    "State",
    "SwitchNode",
    "WhileNode",
    "WhileState",
    "WorkspaceNode",
]
