"""Find the running server of a project."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.project.ownership import is_own_server
from nerve.project.paths import ProjectPaths, read_private_file

SERVER_FILE = Path(".nerve/server.json")
"""The files in which a project's server publishes its process and its address for browsers."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server."""

    url: str
    token: str | None = None
    socket: str | None = None


def find_server(folder: Path) -> ServerAddress | None:
    """Return the address of a project's server, if its process is running.

    A project may come from an untrusted source: only a socket and token in the server's own place count.
    """
    places = ProjectPaths.of(folder)
    try:
        if read_server_info(places) is None:
            return None
        token = read_private_file(places.token).strip()
    except (OSError, ValueError):
        return None
    if find_server_pid(folder) is None:  # its process id may have been reused
        return None
    return ServerAddress("http://localhost", token, str(places.socket))


def find_server_pid(folder: Path) -> int | None:
    """Return the process that listens on the project's socket, if the kernel says it belongs to this user."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.fspath(ProjectPaths.of(folder).socket))
            pid, user, _ = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
    except OSError:
        return None
    return pid if user == os.getuid() else None


def read_server_info(paths: ProjectPaths) -> dict[str, Any] | None:
    """Return the published data of a project's server, if it belongs to this user and its process runs."""
    try:
        info = json.loads(read_private_file(paths.server))
        if paths.symlinks or info["pid"] <= 0 or not is_own_server(paths.server, info):
            return None
        os.kill(info["pid"], 0)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return dict(info)
