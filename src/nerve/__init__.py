"""Nerve: durable workflows of agents, shell commands and Python functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.core.nodes import (
        BashNode,
        BranchNode,
        ExecutionContext,
        FunctionNode,
        GateNode,
        Graph,
        LoopNode,
        MapNode,
        MockNode,
        Node,
        Result,
        Retry,
        WhileNode,
    )
    from nerve.core.queues import Queue as Queue
    from nerve.core.workflow import (
        Limits,
        Workflow,
        WorkflowContext,
        WorkflowEvent,
        WorkflowRun,
        WorkflowState,
    )
    from nerve.session import Session

__version__ = "0.1.0"

_MODULES = {
    "BashNode": "nerve.core.nodes",
    "BranchNode": "nerve.core.nodes",
    "ExecutionContext": "nerve.core.nodes",
    "FunctionNode": "nerve.core.nodes",
    "GateNode": "nerve.core.nodes",
    "Graph": "nerve.core.nodes",
    "Limits": "nerve.core.workflow",
    "LoopNode": "nerve.core.nodes",
    "MapNode": "nerve.core.nodes",
    "MockNode": "nerve.core.nodes",
    "Node": "nerve.core.nodes",
    "Queue": "nerve.core.queues",
    "Result": "nerve.core.nodes",
    "Retry": "nerve.core.nodes",
    "Session": "nerve.session",
    "WhileNode": "nerve.core.nodes",
    "Workflow": "nerve.core.workflow",
    "WorkflowContext": "nerve.core.workflow",
    "WorkflowEvent": "nerve.core.workflow",
    "WorkflowRun": "nerve.core.workflow",
    "WorkflowState": "nerve.core.workflow",
}

__all__ = [
    "BashNode",
    "BranchNode",
    "ExecutionContext",
    "FunctionNode",
    "GateNode",
    "Graph",
    "Limits",
    "LoopNode",
    "MapNode",
    "MockNode",
    "Node",
    "Result",
    "Retry",
    "Session",
    "WhileNode",
    "Workflow",
    "WorkflowContext",
    "WorkflowEvent",
    "WorkflowRun",
    "WorkflowState",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import nerve` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'nerve' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
