"""The MCP server of a project: its tools and resources, over the streams of a process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from nerve import __version__
from nerve.api.errors import ApiError, to_api_error
from nerve.client import Client
from nerve.mcp.host_call import CURRENT_CLIENT, HOST_CALL, HostCall, QuestionForUser
from nerve.mcp.resources import Resources
from nerve.mcp.run_tools import RunTools
from nerve.mcp.workflow_tools import TOOL_PREFIX, WorkflowTools
from nerve.ui.input_lines import read_input_lines

if TYPE_CHECKING:
    from anyio import AsyncFile

SERVER_NAME = "nerve"
INSTRUCTIONS = (
    "Nerve runs the workflows of this project: durable programs of agents, commands and functions. "
    "list_workflows says what exists; start_run starts one; wait_for_run follows it until it ends or waits "
    "for a person; read_result, run_logs, read_changes and read_artifact show what it has made. A run "
    "continues when you stop to wait. A gate is a question to a person: show it to the user, and do not "
    "answer it on your own."
)

Context = ServerRequestContext[Any, Any]
FindClient = Callable[[Context], Client]


class ProjectMcpServer:
    """Handles the requests of MCP hosts with the operations of the API.

    `client` is the API, or a function that returns it for the sender of a request. `prepare` is awaited
    before each request that needs the API, such as to start the project server.
    """

    def __init__(
        self,
        client: Client | FindClient,
        *,
        allow_answers: bool = False,
        workflow_tools: bool = False,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._find_client: FindClient = (lambda _: client) if isinstance(client, Client) else client
        run_tools = RunTools(allow_answers=allow_answers)
        self._tools = {tool.name: tool for tool in run_tools.tools()}
        self._workflow_tools = WorkflowTools(run_tools) if workflow_tools else None
        self._resources = Resources(run_tools)
        self._prepare = prepare

    def create_server(self) -> Server[Any]:
        """Return the server of the MCP library."""
        return Server(
            SERVER_NAME,
            version=__version__,
            title="Nerve",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    async def serve_stdio(self) -> None:
        """Serve the host that has started this process, until it closes standard input."""
        server = self.create_server()
        stdin = cast("AsyncFile[str]", read_input_lines())
        async with stdio_server(stdin=stdin) as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    async def _list_tools(self, context: Context, params: Any) -> mcp_types.ListToolsResult:
        tools = [tool.describe() for tool in self._tools.values()]
        if self._workflow_tools is not None:
            async with self._open_api(context):
                tools += await self._workflow_tools.list_tools()
        return mcp_types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
        HOST_CALL.set(HostCall(context, params))
        try:
            return tool_result(await self._execute(context, params))
        except QuestionForUser as question:
            return question.result
        except Exception as error:
            return tool_result({"error": to_api_error(error).to_dict()}, is_error=True)

    async def _execute(self, context: Context, params: mcp_types.CallToolRequestParams) -> dict[str, Any]:
        await self._prepare_api(context)
        name, arguments = params.name, params.arguments or {}
        if (tool := self._tools.get(name)) is not None:
            return await tool.call(arguments)
        if self._workflow_tools is not None and name.startswith(TOOL_PREFIX):
            return await self._workflow_tools.call(name, arguments)
        raise ApiError("not_found", f"Unknown tool '{name[:80]}'", f"Tools: {', '.join(self._tools)}")

    async def _list_resources(self, context: Context, params: Any) -> mcp_types.ListResourcesResult:
        async with self._open_api(context):
            return mcp_types.ListResourcesResult(resources=await self._resources.list_all())

    async def _list_templates(self, context: Context, params: Any) -> mcp_types.ListResourceTemplatesResult:
        return mcp_types.ListResourceTemplatesResult(resource_templates=self._resources.templates())

    async def _read_resource(
        self, context: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        async with self._open_api(context):
            return await self._resources.read(params.uri)

    @contextlib.asynccontextmanager
    async def _open_api(self, context: Context) -> AsyncIterator[None]:
        """Use the API in the block; its errors become those of the protocol."""
        try:
            await self._prepare_api(context)
            yield
        except Exception as error:
            raise to_mcp_error(error) from error

    async def _prepare_api(self, context: Context) -> None:
        CURRENT_CLIENT.set(self._find_client(context))
        if self._prepare is not None:
            await self._prepare()


def tool_result(data: dict[str, Any], is_error: bool = False) -> mcp_types.CallToolResult:
    """Return data as JSON text for models, and as structured content for programs."""
    text = mcp_types.TextContent(text=json.dumps(data, ensure_ascii=False))
    return mcp_types.CallToolResult(content=[text], structured_content=data, is_error=is_error)


def to_mcp_error(error: Exception) -> MCPError:
    """Return an error of the API as one of the protocol, with its code and fix as data."""
    if isinstance(error, MCPError):
        return error
    api_error = to_api_error(error)
    code = mcp_types.INVALID_PARAMS if api_error.status < 500 else mcp_types.INTERNAL_ERROR
    return MCPError(code, api_error.sentences, api_error.to_dict())
