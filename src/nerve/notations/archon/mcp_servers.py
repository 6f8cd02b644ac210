"""Read the MCP servers of a JSON file that a step of Archon names."""

from __future__ import annotations

import re
from typing import Any

SERVER_KEYS = ("type", "command", "args", "env", "url", "headers")
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Z_][A-Z0-9_]*))")


def read_mcp_servers(value: Any) -> dict[str, Any]:
    """Return the servers in a file, by name; raises ValueError for what cannot be honoured."""
    servers = value.get("mcpServers", value) if isinstance(value, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(server, dict) for server in servers.values()):
        raise ValueError("it must be an object of servers by name")
    return {name: read_server(name, server) for name, server in servers.items()}


def read_server(name: str, server: dict[str, Any]) -> dict[str, Any]:
    """Return one server of the spec."""
    for key in server:
        if key not in SERVER_KEYS:
            raise ValueError(f"server '{name}' has the unknown key '{key}'")
    if server.get("type") not in (None, "stdio", "http"):
        raise ValueError(f"server '{name}' has the type '{server['type']}', which is not supported")
    result = dict(server)
    for key in ("env", "headers"):
        if isinstance(texts := server.get(key), dict):
            result[key] = {name: VARIABLE.sub(braced_variable, str(text)) for name, text in texts.items()}
    return result


def braced_variable(match: re.Match[str]) -> str:
    return f"${{{match[1] or match[2]}}}"
