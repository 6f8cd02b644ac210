"""Agents: the port to whatever answers prompts, and the leaf that asks through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nerve.agents.port import (
    Assistant,
    Begun,
    Capabilities,
    Chunk,
    Decision,
    Done,
    HostTool,
    Options,
    Permission,
    Plan,
    Provider,
    Thought,
    Tool,
    ToolUpdate,
    Unavailable,
    Usage,
)

if TYPE_CHECKING:
    from nerve.agents.node import AgentNode

__all__ = [
    "AgentNode",
    "Assistant",
    "Begun",
    "Capabilities",
    "Chunk",
    "Decision",
    "Done",
    "HostTool",
    "Options",
    "Permission",
    "Plan",
    "Provider",
    "Thought",
    "Tool",
    "ToolUpdate",
    "Unavailable",
    "Usage",
]


def __getattr__(name: str) -> Any:
    """The port costs nothing to import; the node, which needs the core, is imported when it is used."""
    if name != "AgentNode":
        raise AttributeError(f"module 'nerve.agents' has no attribute '{name}'")
    from nerve.agents.node import AgentNode

    return AgentNode
