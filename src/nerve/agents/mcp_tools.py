"""A minimal MCP server for the tools that Nerve offers to an agent, independent of how messages travel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nerve.agents.provider import Chunk, HostTool, ToolCall, ToolFailed, ToolUpdate
from nerve.project.agent_settings import RESERVED_SERVER_NAME

MCP_TOOL_PREFIX = f"mcp__{RESERVED_SERVER_NAME}__"


class McpToolServer:
    """Handles the messages of the agent's MCP client."""

    def __init__(self, tools: Mapping[str, HostTool]) -> None:
        self._tools = tools
        self._calls: dict[Any, asyncio.Task[Any]] = {}
        """The running calls by the ids of their messages."""
        self._recorded_ids: set[str] = set()

    @property
    def config(self) -> dict[str, Any]:
        """The server in the MCP configuration of Claude Code; empty without tools."""
        return {RESERVED_SERVER_NAME: {"type": "sdk", "name": RESERVED_SERVER_NAME}} if self._tools else {}

    def owns_tool(self, tool: str) -> bool:
        return tool.removeprefix(MCP_TOOL_PREFIX) in self._tools and tool.startswith(MCP_TOOL_PREFIX)

    def is_recorded(self, chunk: Chunk) -> bool:
        """Whether a chunk reports a call that is recorded where it is executed."""
        match chunk:
            case ToolCall(name, _, id) if self.owns_tool(name):
                if not self._tools[name.removeprefix(MCP_TOOL_PREFIX)].is_recorded:
                    return False
                self._recorded_ids.add(id)
                return True
            case ToolUpdate(id):
                return id in self._recorded_ids
        return False

    async def handle_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to a message; that to a notification is not sent."""
        response: dict[str, Any] = {"jsonrpc": "2.0"}
        if "id" not in message:
            if message.get("method") == "notifications/cancelled":
                self._cancel_call((message.get("params") or {}).get("requestId"))
            return response | {"result": {}}
        response["id"] = message["id"]
        match message:
            case {"method": "initialize"}:
                version = message.get("params", {}).get("protocolVersion", "2025-06-18")
                server = {"name": RESERVED_SERVER_NAME, "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            case {"method": "tools/list"}:
                tools = [
                    {"name": name, "description": tool.description, "inputSchema": dict(tool.schema)}
                    for name, tool in self._tools.items()
                ]
                result = {"tools": tools}
            case {"method": "tools/call", "params": {"name": str(name)}} if name in self._tools:
                arguments = message["params"].get("arguments") or {}
                result = await self._call_tool(message["id"], self._tools[name], arguments)
            case {"method": "ping"}:
                result = {}
            case _:
                return response | {"error": {"code": -32601, "message": "unknown method or tool"}}
        return response | {"result": result}

    async def _call_tool(self, id: Any, tool: HostTool, arguments: Any) -> dict[str, Any]:
        task = asyncio.current_task()
        assert task is not None
        self._calls[id] = task
        try:
            output = await tool.call(arguments)
        except ToolFailed as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        finally:
            self._calls.pop(id, None)
        return {"content": [{"type": "text", "text": output}]}

    def _cancel_call(self, id: Any) -> None:
        if (task := self._calls.get(id)) is not None:
            task.cancel()
