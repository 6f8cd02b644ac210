"""`nerve web`: open the web page of the project in a browser that is signed in."""

from __future__ import annotations

import asyncio
import webbrowser

from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag
from nerve.cli.server import create_launch_url, print_server_result, running_server
from nerve.cli.trust import require_trust
from nerve.commander.project_server import ProjectServer


def web_command(*, no_open: Flag = False, json: Flag = False, quiet: Flag = False) -> int:
    """Open the web page of this project, signed in.

    Starts the project server in the background if none is running; the server exits when it is idle, and an
    open page keeps it running.

    Parameters
    ----------
    no_open
        Print an address that signs in one browser, once, within five minutes, instead of opening one.
    json
        Print one JSON object.
    quiet
        Print nothing, unless the address has to be opened by hand.
    """
    require_trust(opening=True)
    asyncio.run(ProjectServer().start_if_needed())
    launch_url = create_launch_url()
    is_opened = not no_open and webbrowser.open(launch_url)
    address = (running_server() or {}).get("url", "")
    if is_opened:
        print_server_result({"url": address, "opened": True}, f"Opened {address}", json, quiet)
    else:
        print_server_result({"url": launch_url, "opened": False}, launch_url, json, False)
    return COMPLETED
