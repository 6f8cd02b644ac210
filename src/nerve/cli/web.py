"""`nerve web`: open the web page of the project in a browser that is signed in."""

from __future__ import annotations

import asyncio
import html
import os
import webbrowser
from pathlib import Path

from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag, ReportOptions
from nerve.cli.reports import print_report
from nerve.cli.server import create_launch_url, running_server
from nerve.cli.trust import require_trust
from nerve.commander.project_server import ProjectServer
from nerve.project.paths import ProjectPaths

REDIRECT_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={0}">
<title>Nerve</title>
<a href="{0}">Open Nerve</a>
"""


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
    is_opened = not no_open and webbrowser.open(write_redirect_file(launch_url).as_uri())
    address = (running_server() or {}).get("url", "")
    if is_opened:
        print_report(ReportOptions(json, quiet), {"url": address, "opened": True}, f"Opened {address}")
    else:
        print_report(ReportOptions(json), {"url": launch_url, "opened": False}, launch_url)
    return COMPLETED


def write_redirect_file(launch_url: str) -> Path:
    """Write a file that only its owner can read and that leads to an address; return its path.

    Other users of the machine can see the command line of a browser, and must not see the code.
    """
    path = ProjectPaths.of(Path()).private / "sign-in.html"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(REDIRECT_PAGE.format(html.escape(launch_url)))
    return path
