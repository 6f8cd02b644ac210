"""`nerve mcp`: an MCP server for Claude Code, Codex and other programs that speak MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nerve.cli.commander import check_connection, print_protocol_notice
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, INTERRUPTED
from nerve.cli.parameters import FileList, Flag
from nerve.cli.trust import require_trust

if TYPE_CHECKING:
    from nerve.commander.project_server import ProjectServer

INSTALL_FIX = "Install it: pip install '.[mcp]' in the clone of Nerve."


def mcp_command(
    *,
    allow_answers: Flag = False,
    workflow_tools: Flag = False,
    http: str | None = None,
    server: str | None = None,
    modules: FileList = (),
) -> int:
    """Serve MCP on standard input and output, or over HTTP, so that an agent can start and follow workflows.

    An agent's program starts this command; `nerve init --with claude` or `--with codex` registers it. Starts
    the project server in the background if none is running; runs continue when the agent's program has ended.

    Parameters
    ----------
    allow_answers
        Let the agent answer gates. Its program asks you first, if it can. Default: only people answer.
    workflow_tools
        Offer each workflow as a tool of its own, with its inputs.
    http
        Serve MCP over HTTP at HOST:PORT of this machine instead; 0 selects a free port. Each request needs a
        token of the project.
    server
        The URL of a running server. The token comes from NERVE_TOKEN, or from the project.
    modules
        A Python file that defines register(session), or a workflow file, to load into the started server.
    """
    try:
        from nerve.mcp.server import ProjectMcpServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError(f"The MCP library is not installed. {INSTALL_FIX}") from None
    from nerve.commander.project_server import ProjectServer, client_for_url

    check_connection(server, modules)
    address = None if http is None else read_address(http)
    home = ProjectServer(modules=modules)

    async def start_server() -> None:
        require_trust(opening=True)
        await home.start_if_needed()

    async def serve_stdio() -> None:
        async with home.client("mcp") if server is None else client_for_url(server, via="mcp") as client:
            await ProjectMcpServer(
                client,
                allow_answers=allow_answers,
                workflow_tools=workflow_tools,
                prepare=start_server if server is None else None,
            ).serve_stdio()

    async def find_url() -> str:
        if server is not None:
            return server.rstrip("/")
        await start_server()
        return find_project_url(home)

    if address is None:
        print_protocol_notice("MCP", "An agent starts it: claude mcp add nerve -- nerve mcp.")
        work = serve_stdio()
    else:
        work = serve_http(address, find_url, allow_answers, workflow_tools)
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return INTERRUPTED
    return COMPLETED


def read_address(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT; UsageError unless other machines cannot reach it."""
    from nerve.server.bind import is_loopback

    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal():
        raise UsageError(f"--http must be HOST:PORT, got '{text}'. Example: 127.0.0.1:7434.")
    if not is_loopback(host):
        raise UsageError(
            f"--http serves programs of this machine, got '{text}'."
            " For others, `nerve serve --wide` offers the same at /mcp."
        )
    return host, int(port)


def find_project_url(home: ProjectServer) -> str:
    """Return the URL of the project server that runs; its socket would not say whose token a call has."""
    from nerve.client.server_address import read_server_info
    from nerve.project.paths import ProjectPaths

    return str((read_server_info(ProjectPaths.of(home.folder)) or {}).get("url"))


async def serve_http(
    address: tuple[str, int],
    find_url: Callable[[], Awaitable[str]],
    allow_answers: bool,
    workflow_tools: bool,
) -> None:
    from nerve.server.bind import UnsafeServerSetup
    from nerve.server.mcp_gateway import serve_mcp_gateway

    def ready(url: str) -> None:
        print(f"MCP is served at {url}. Ctrl-C ends the command.", flush=True)

    try:
        await serve_mcp_gateway(
            *address, find_url, ready, allow_answers=allow_answers, workflow_tools=workflow_tools
        )
    except UnsafeServerSetup as error:
        raise UsageError(f"{error.message}. Use another address with --http.") from None
