"""Tools of ours that the agent may call: an MCP server of few words, spoken over the program's own pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.agents.port import HostTool

SERVER = "nerve"
PREFIX = f"mcp__{SERVER}__"


class HostTools:
    """Answers the messages of the agent's MCP client."""

    def __init__(self, tools: Mapping[str, HostTool]) -> None:
        self._tools = tools

    @property
    def config(self) -> dict[str, Any]:
        """What the program is told about where its MCP servers are."""
        return {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}} if self._tools else {}}

    def is_ours(self, tool: str) -> bool:
        return tool.removeprefix(PREFIX) in self._tools and tool.startswith(PREFIX)

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"jsonrpc": "2.0"}
        if "id" not in message:
            return told | {"result": {}}
        told["id"] = message["id"]
        match message:
            case {"method": "initialize"}:
                version = message.get("params", {}).get("protocolVersion", "2025-06-18")
                server = {"name": SERVER, "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            case {"method": "tools/list"}:
                result = {"tools": [described(name, tool) for name, tool in self._tools.items()]}
            case {"method": "tools/call", "params": {"name": str(name)}} if name in self._tools:
                said = await self._tools[name].call(message["params"].get("arguments") or {})
                result = {"content": [{"type": "text", "text": said}]}
            case {"method": "ping"}:
                result = {}
            case _:
                return told | {"error": {"code": -32601, "message": "there is no such method or tool"}}
        return told | {"result": result}


def described(name: str, tool: HostTool) -> dict[str, Any]:
    return {"name": name, "description": tool.description, "inputSchema": dict(tool.schema)}
