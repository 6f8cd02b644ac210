"""Agents: the provider port and the node that queries an agent through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from nerve.agents.agent_node import AgentNode

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
    """Import AgentNode on first use: it needs the core, which the provider port does not."""
    if name != "AgentNode":
        raise AttributeError(f"module 'nerve.agents' has no attribute '{name}'")
    from nerve.agents.agent_node import AgentNode

    return AgentNode
