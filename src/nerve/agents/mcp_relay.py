"""The tools of Nerve as an MCP server that an agent's program starts: a relay to a socket of this process."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nerve.agents import mcp_relay_script
from nerve.agents.chunk_stream import AnswerTasks
from nerve.agents.mcp_tools import McpToolServer
from nerve.project.agent_settings import RESERVED_SERVER_NAME

MAX_MESSAGE_BYTES = 16 * 1024 * 1024


@asynccontextmanager
async def serve_tools(tools: McpToolServer, answers: AnswerTasks) -> AsyncIterator[dict[str, Any]]:
    """Serve the tools until the context ends; yield the server to add to those of the agent, by name.

    The socket is in a folder that only this user can open, so the relay needs no secret.
    """
    if not tools.config:
        yield {}
        return
    writers: set[asyncio.StreamWriter] = set()

    async def answer(message: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        response = await tools.handle_message(message)
        if "id" in message:
            writer.write(json.dumps(response).encode() + b"\n")
            await writer.drain()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if isinstance(message, dict) and "method" in message:
                    answers.start(answer(message, writer))
        except (ValueError, ConnectionError):
            pass  # not a message, or the program has ended: it loses its tools
        finally:
            writers.discard(writer)
            writer.close()

    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        path = str(Path(folder, "tools"))
        server = await asyncio.start_unix_server(handle_connection, path, limit=MAX_MESSAGE_BYTES)
        try:
            yield {
                RESERVED_SERVER_NAME: {
                    "command": sys.executable,
                    "args": ["-I", "-S", mcp_relay_script.__file__, path],
                }
            }
        finally:
            server.close()
            for writer in list(writers):
                writer.close()
