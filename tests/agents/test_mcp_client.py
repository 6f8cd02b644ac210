"""MCP: the client of agents without a program, and the relay for programs that start their servers."""

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from core.workflow.support import within
from nerve.agents.chunk_stream import AnswerTasks
from nerve.agents.mcp_client import open_mcp_tools
from nerve.agents.mcp_relay import serve_tools
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import HostTool, ToolFailed, Unavailable, unrecorded_tool

SERVER = str(Path(__file__).parent / "stubs" / "mcp_server.py")


def program(*args, **env):
    return {"docs": {"command": sys.executable, "args": [SERVER, *args], "env": env}}


async def test_the_tools_of_a_program_can_be_called():
    async with open_mcp_tools(program(DOCS_KEY="k"), None, unrecorded_tool) as tools:
        assert list(tools) == ["mcp__docs__lookup"]
        tool = tools["mcp__docs__lookup"]
        assert tool.schema["required"] == ["word"]
        assert await within(tool.call({"word": "crane"})) == "crane means k"
        with pytest.raises(ToolFailed, match="unknown means k"):
            await within(tool.call({"word": "unknown"}))


async def test_a_server_that_ends_fails_the_call_and_the_next_one(tmp_path):
    async with open_mcp_tools(program(), str(tmp_path), unrecorded_tool) as tools:
        with pytest.raises(ToolFailed, match="MCP server 'docs': it has ended"):
            await within(tools["mcp__docs__lookup"].call({"word": "crash"}))
        with pytest.raises(ToolFailed, match="MCP server 'docs': it has ended"):
            await within(tools["mcp__docs__lookup"].call({"word": "crane"}))


async def test_a_call_can_be_cancelled():
    async with open_mcp_tools(program(), None, unrecorded_tool) as tools:
        call = asyncio.create_task(tools["mcp__docs__lookup"].call({"word": "wait"}))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(call)


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"command": "no-such-program"}, "MCP server 'docs' cannot be used: .*no-such-program"),
        ({"command": "false"}, "MCP server 'docs' cannot be used: it has ended"),
    ],
)
async def test_a_server_that_does_not_start_is_named(server, told):
    with pytest.raises(Unavailable, match=told):
        async with open_mcp_tools({"docs": server}, None, unrecorded_tool):
            pass


class Handler(BaseHTTPRequestHandler):
    """The server of the stub over HTTP: JSON, and server-sent events for calls."""

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.heard.append((message["method"], self.headers.get("authorization")))
        if "id" not in message:
            self.send_response(202)
            self.end_headers()
            return
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}},
            "tools/list": {"tools": [{"name": "lookup", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "a crane"}]},
        }
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})
        is_call = message["method"] == "tools/call"
        body = f"event: message\ndata: {answer}\n\n" if is_call else answer
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_call else "application/json")
        self.send_header("mcp-session-id", "s1")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


async def test_the_tools_of_a_server_at_an_address_can_be_called():
    pytest.importorskip(
        "httpx2", reason="httpx2 is not installed: pip install '.[llm]' in the clone of Nerve"
    )
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.heard = []
    Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{http.server_port}/mcp"
    try:
        server = {"docs": {"url": url, "headers": {"Authorization": "Bearer k"}}}
        async with open_mcp_tools(server, None, unrecorded_tool) as tools:
            assert await within(tools["mcp__docs__lookup"].call({})) == "a crane"
    finally:
        await asyncio.to_thread(http.shutdown)
        http.server_close()
    assert http.heard[-1] == ("tools/call", "Bearer k")


async def test_a_program_reaches_the_tools_of_nerve_through_the_relay():
    async def call(arguments):
        if "word" not in arguments:
            raise ToolFailed("word is missing")
        return f"<{arguments['word']}>"

    answers = AnswerTasks()
    server = McpToolServer({"find": HostTool("Find it.", {"type": "object"}, call)})
    async with (
        serve_tools(server, answers) as servers,
        open_mcp_tools(servers, None, unrecorded_tool) as tools,
    ):
        tool = tools["mcp__nerve__find"]
        assert tool.description == "Find it."
        assert await within(asyncio.gather(*(tool.call({"word": n}) for n in range(3)))) == [
            "<0>",
            "<1>",
            "<2>",
        ]
        with pytest.raises(ToolFailed, match="word is missing"):
            await within(tool.call({}))
    await answers.close()


async def test_without_tools_there_is_no_server():
    answers = AnswerTasks()
    async with serve_tools(McpToolServer({}), answers) as servers:
        assert servers == {}
    await answers.close()
