"""A small MCP server on standard input and output, with the tool `lookup`.

python mcp_server.py [FILE]: the arguments of every call are appended to FILE.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

LOOKUP = {
    "name": "lookup",
    "description": "Look a word up.",
    "inputSchema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "docs", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [LOOKUP]}
        case "tools/call":
            return look_up(message["params"]["arguments"]["word"])
    return {}


def look_up(word: str) -> dict[str, Any]:
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a") as file:
            file.write(f"{word}\n")
    if word == "wait":
        time.sleep(60)
    if word == "crash":
        sys.exit(3)
    text = f"{word} means {os.environ.get('DOCS_KEY', 'nothing')}"
    return {"content": [{"type": "text", "text": text}], "isError": word == "unknown"}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        response = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
        sys.stdout.write(json.dumps(response) + "\n")
        sys.stdout.flush()
