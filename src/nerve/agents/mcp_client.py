"""A client of MCP servers, for agents that have no program of their own to connect to them."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

from nerve.agents.chunk_stream import cancel_and_wait
from nerve.agents.launch import CLIENT_INFO, agent_environment
from nerve.agents.provider import HostTool, ToolFailed, Unavailable
from nerve.errors import NerveError
from nerve.process.line_process import LineProcess, open_line_process

PROTOCOL_VERSION = "2025-06-18"
START_TIMEOUT_S = 30.0
"""Seconds that a server has to start and to list its tools."""
MAX_STDERR_CHARS = 500

Message = dict[str, Any]


class McpError(NerveError):
    """A server sent an error, or has ended."""


class McpTransport(Protocol):
    """How messages reach a server."""

    async def request(self, message: Message) -> Message:
        """Send a request and return the response."""
        ...

    async def notify(self, message: Message) -> None:
        """Send a notification."""
        ...


class McpProgramTransport:
    """The lines of a server that runs as a program."""

    def __init__(self, program: LineProcess) -> None:
        self._program = program
        self._pending: dict[Any, asyncio.Future[Message]] = {}
        self._end = ""
        """Why the program answers no more; empty while it runs."""

    async def request(self, message: Message) -> Message:
        if self._end:
            raise McpError(self._end)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[message["id"]] = future
        self._send(message)
        try:
            return await future
        finally:
            del self._pending[message["id"]]

    async def notify(self, message: Message) -> None:
        self._send(message)

    def _send(self, message: Message) -> None:
        self._program.send(json.dumps(message).encode())

    async def read_messages(self) -> None:
        """Hand the responses out until the program ends."""
        with suppress(OSError):
            while line := await self._program.read_line():
                with suppress(ValueError):
                    self._handle_message(json.loads(line))
        output = (await self._program.wait_for_stderr()).strip()[-MAX_STDERR_CHARS:]
        self._end = "it has ended" + (f": {output}" if output else "")
        for future in self._pending.values():
            if not future.done():
                future.set_exception(McpError(self._end))

    def _handle_message(self, message: Any) -> None:
        match message:
            case {"method": str(method), "id": id}:
                unknown = {"error": {"code": -32601, "message": f"unknown method: {method}"}}
                answer = {"result": {}} if method == "ping" else unknown
                self._send({"jsonrpc": "2.0", "id": id, **answer})
            case {"id": id} if (future := self._pending.get(id)) is not None and not future.done():
                future.set_result(message)


class McpHttpTransport:
    """The requests to a server at an address."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url
        self._headers = {"Accept": "application/json, text/event-stream"}

    async def request(self, message: Message) -> Message:
        async with self._client.stream("POST", self._url, json=message, headers=self._headers) as response:
            self._keep_session(response)
            if response.status_code >= 400:
                text = (await response.aread()).decode(errors="replace")
                raise McpError(f"HTTP status {response.status_code}: {text[:MAX_STDERR_CHARS]}")
            if "text/event-stream" not in response.headers.get("content-type", ""):
                answer: Message = json.loads(await response.aread())
                return answer
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    event = json.loads(line.removeprefix("data:"))
                    if event.get("id") == message["id"] and "method" not in event:
                        return dict(event)
        raise McpError("the response ended without an answer")

    async def notify(self, message: Message) -> None:
        response = await self._client.post(self._url, json=message, headers=self._headers)
        self._keep_session(response)

    def _keep_session(self, response: Any) -> None:
        if session := response.headers.get("mcp-session-id"):
            self._headers["Mcp-Session-Id"] = session


class McpClient:
    """The tools of one server."""

    def __init__(self, name: str, transport: McpTransport) -> None:
        self._name, self._transport = name, transport
        self._ids = itertools.count(1)

    async def start(self) -> None:
        hello = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
        await self._request("initialize", hello)
        await self._transport.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def list_tools(self) -> list[Message]:
        tools: list[Message] = []
        cursor: str | None = None
        while True:
            page = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            tools += page.get("tools") or ()
            if not (cursor := page.get("nextCursor")):
                return tools

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the text of the result; ToolFailed if the server reports an error or has ended."""
        try:
            result = await self._request("tools/call", {"name": tool, "arguments": dict(arguments)})
        except (McpError, OSError, ValueError) as error:
            raise ToolFailed(f"MCP server '{self._name}': {error}") from error
        texts = [
            str(part["text"]) if part.get("type") == "text" else json.dumps(part)
            for part in result.get("content") or ()
        ]
        text = "\n".join(texts) or json.dumps(result.get("structuredContent"))
        if result.get("isError"):
            raise ToolFailed(text)
        return text

    async def _request(self, method: str, params: Mapping[str, Any]) -> Message:
        id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params)}
        try:
            response = await self._transport.request(message)
        except asyncio.CancelledError:
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": id}}
            with suppress(Exception):
                await self._transport.notify({"jsonrpc": "2.0", **cancelled})
            raise
        if (error := response.get("error")) is not None:
            raise McpError(str(error.get("message")))
        return response.get("result") or {}


@asynccontextmanager
async def open_mcp_tools(
    servers: Mapping[str, Mapping[str, Any]], cwd: str | None, record: Callable[..., HostTool]
) -> AsyncIterator[dict[str, HostTool]]:
    """Connect to servers until the context ends; yield their tools by the names that permissions use.

    `record` returns the tool that records its calls. Unavailable for a server that does not start.
    """
    async with AsyncExitStack() as stack:
        tools: dict[str, HostTool] = {}
        for name, server in servers.items():
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    transport = await open_transport(stack, server, cwd)
                    client = McpClient(name, transport)
                    await client.start()
                    listed = await client.list_tools()
            except TimeoutError:
                raise Unavailable(f"MCP server '{name}' did not start in {START_TIMEOUT_S:.0f} s") from None
            except Exception as error:
                raise Unavailable(f"MCP server '{name}' cannot be used: {error}") from error
            for tool in listed:
                full_name = f"mcp__{name}__{tool['name']}"
                call = partial(client.call_tool, tool["name"])
                description = tool.get("description") or tool["name"]
                tools[full_name] = record(full_name, description, tool.get("inputSchema") or {}, call)
        yield tools


async def open_transport(stack: AsyncExitStack, server: Mapping[str, Any], cwd: str | None) -> McpTransport:
    if "url" in server:
        import httpx2

        client = httpx2.AsyncClient(headers=dict(server.get("headers") or {}), timeout=None)
        return McpHttpTransport(await stack.enter_async_context(client), server["url"])
    argv = [server["command"], *(server.get("args") or ())]
    env = agent_environment((), server.get("env") or {})
    program = await stack.enter_async_context(open_line_process(argv, cwd=cwd, env=env))
    transport = McpProgramTransport(program)
    reader = asyncio.create_task(transport.read_messages())
    stack.push_async_callback(cancel_and_wait, reader)
    return transport
