"""`nerve mcp`: an MCP server for Claude Code, Codex and other programs that speak MCP."""

from __future__ import annotations

import asyncio

from nerve.cli.commander import check_connection, print_protocol_notice
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, INTERRUPTED
from nerve.cli.parameters import FileList, Flag
from nerve.cli.trust import require_trust

INSTALL_FIX = "Install it: pip install '.[mcp]' in the clone of Nerve."


def mcp_command(
    *,
    allow_answers: Flag = False,
    workflow_tools: Flag = False,
    server: str | None = None,
    modules: FileList = (),
) -> int:
    """Serve MCP on standard input and output, so that an agent can start and follow workflows.

    An agent's program starts this command; `nerve init --with claude` or `--with codex` registers it. Starts
    the project server in the background if none is running; runs continue when the agent's program has ended.

    Parameters
    ----------
    allow_answers
        Let the agent answer gates. Its program asks you first, if it can. Default: only people answer.
    workflow_tools
        Offer each workflow as a tool of its own, with its inputs.
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
    print_protocol_notice("MCP", "An agent starts it: claude mcp add nerve -- nerve mcp.")
    home = ProjectServer(modules=modules)

    async def start_server() -> None:
        require_trust(opening=True)
        await home.start_if_needed()

    async def serve() -> None:
        async with home.client("mcp") if server is None else client_for_url(server, via="mcp") as client:
            await ProjectMcpServer(
                client,
                allow_answers=allow_answers,
                workflow_tools=workflow_tools,
                prepare=start_server if server is None else None,
            ).serve_stdio()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return INTERRUPTED
    return COMPLETED
