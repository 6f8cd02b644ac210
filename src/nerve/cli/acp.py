"""`nerve acp`: an agent for Zed and other editors that speak the Agent Client Protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from nerve.cli.commander import check_connection, print_protocol_notice
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, INTERRUPTED
from nerve.cli.parameters import FileList
from nerve.cli.trust import require_trust
from nerve.client import Client


def acp_command(*, server: str | None = None, modules: FileList = ()) -> int:
    """Serve the Agent Client Protocol on standard input and output, so that an editor runs workflows.

    An editor starts this command. Its prompts start runs, gates become permission requests, and steps, tool
    calls and changed files are shown. Starts the project server of the folder that the editor has opened, in
    the background; runs continue when the editor has ended.

    Parameters
    ----------
    server
        The URL of a running server. The token comes from NERVE_TOKEN, or from the project.
    modules
        A Python file that defines register(session), or a workflow file, to load into the started server.
    """
    try:
        import acp
    except ModuleNotFoundError:
        fix = "Install it: pip install '.[acp]' in the clone of Nerve."
        raise UsageError(f"The ACP library is not installed. {fix}") from None
    from nerve.acp.project_agent import ProjectAcpAgent
    from nerve.commander.project_server import ProjectServer, client_for_url

    check_connection(server, modules)
    print_protocol_notice("ACP", "An editor starts it, with the command `nerve acp` in its settings.")
    clients: dict[Path, Client] = {}

    async def open_project(folder: Path) -> Client:
        if server is None:
            require_trust(opening=True, folder=folder)
            home = ProjectServer(folder, modules=modules)
            await home.start_if_needed()
        if folder not in clients:
            clients[folder] = home.client("acp") if server is None else client_for_url(server, via="acp")
        return clients[folder]

    async def serve() -> None:
        try:
            await acp.run_agent(cast("acp.Agent", ProjectAcpAgent(open_project)))
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # The library ends at Ctrl-C as at the end of input.
                raise asyncio.CancelledError
        finally:
            for client in clients.values():
                await client.close()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return INTERRUPTED
    return COMPLETED
