"""A minimal MCP server for the tools that Nerve offers to the agent, over the program's own pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.agents.provider import HostTool

MCP_SERVER_NAME = "nerve"
MCP_TOOL_PREFIX = f"mcp__{MCP_SERVER_NAME}__"


class McpToolServer:
    """Handles the messages of the agent's MCP client."""

    def __init__(self, tools: Mapping[str, HostTool]) -> None:
        self._tools = tools

    @property
    def config(self) -> dict[str, Any]:
        """The MCP configuration for the program."""
        return {
            "mcpServers": {MCP_SERVER_NAME: {"type": "sdk", "name": MCP_SERVER_NAME}} if self._tools else {}
        }

    def owns_tool(self, tool: str) -> bool:
        return tool.removeprefix(MCP_TOOL_PREFIX) in self._tools and tool.startswith(MCP_TOOL_PREFIX)

    async def handle_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        response: dict[str, Any] = {"jsonrpc": "2.0"}
        if "id" not in message:
            return response | {"result": {}}
        response["id"] = message["id"]
        match message:
            case {"method": "initialize"}:
                version = message.get("params", {}).get("protocolVersion", "2025-06-18")
                server = {"name": MCP_SERVER_NAME, "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            case {"method": "tools/list"}:
                tools = [
                    {"name": name, "description": tool.description, "inputSchema": dict(tool.schema)}
                    for name, tool in self._tools.items()
                ]
                result = {"tools": tools}
            case {"method": "tools/call", "params": {"name": str(name)}} if name in self._tools:
                output = await self._tools[name].call(message["params"].get("arguments") or {})
                result = {"content": [{"type": "text", "text": output}]}
            case {"method": "ping"}:
                result = {}
            case _:
                return response | {"error": {"code": -32601, "message": "unknown method or tool"}}
        return response | {"result": result}
