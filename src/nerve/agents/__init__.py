"""Agents: the provider port and the node that queries an agent through it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.agents.agent_node import AgentNode
    from nerve.agents.provider import (
        AssistantText,
        Capabilities,
        Chunk,
        HostTool,
        PermissionDecision,
        PermissionRequest,
        PlanUpdate,
        Provider,
        QueryOptions,
        Reasoning,
        ThreadStarted,
        ToolCall,
        ToolUpdate,
        TurnFinished,
        TurnUsage,
        Unavailable,
    )

__all__ = [
    "AgentNode",
    "AssistantText",
    "Capabilities",
    "Chunk",
    "HostTool",
    "PermissionDecision",
    "PermissionRequest",
    "PlanUpdate",
    "Provider",
    "QueryOptions",
    "Reasoning",
    "ThreadStarted",
    "ToolCall",
    "ToolUpdate",
    "TurnFinished",
    "TurnUsage",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use: the registry needs neither the core nor the provider port."""
    if name not in __all__:
        raise AttributeError(f"module 'nerve.agents' has no attribute '{name}'")
    module = "nerve.agents.agent_node" if name == "AgentNode" else "nerve.agents.provider"
    return getattr(import_module(module), name)
