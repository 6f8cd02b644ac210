"""Agents: the port to whatever answers prompts, and the leaf that asks through it."""

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
    """The port costs nothing to import; the node, which needs the core, is imported when it is used."""
    if name != "AgentNode":
        raise AttributeError(f"module 'nerve.agents' has no attribute '{name}'")
    from nerve.agents.agent_node import AgentNode

    return AgentNode
