"""Sockets of the server: TCP on loopback, and a Unix socket that only this user can open."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from pathlib import Path

from nerve.errors import NerveError

MAX_PORT = 65535


class UnsafeServerSetup(NerveError):
    """The server cannot start safely; `fix` says what to do about it."""

    def __init__(self, message: str, fix: str, code: str = "refused") -> None:
        super().__init__(f"{message}. {fix}")
        self.message, self.fix, self.code = message, fix, code


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bind_tcp(host: str, port: int, wide: bool = False) -> socket.socket:
    """Return a listening TCP socket. An address that other machines can reach requires `wide`."""
    if not 0 <= port <= MAX_PORT:
        fix = f"Use --port with a number from 0 to {MAX_PORT}; 0 selects a free port"
        raise UnsafeServerSetup(f"Invalid port {port}", fix, "bad_request")
    if not wide and not is_loopback(host):
        message = f"{host} is reachable from other machines, and traffic is not encrypted"
        fix = "Use --host 127.0.0.1, or allow it with --wide"
        raise UnsafeServerSetup(message, fix, "bad_request")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        message = f"'{host}' is not an address of this machine"
        raise UnsafeServerSetup(
            message, "Use --host with a local address, such as 127.0.0.1", "bad_request"
        ) from None
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()  # SO_REUSEADDR lets two sockets bind; only listen() detects the conflict
    except OSError as error:
        bound.close()
        message = f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
        is_in_use = error.errno == errno.EADDRINUSE
        fix = "Use another --port or --host"
        raise UnsafeServerSetup(message, fix, "conflict" if is_in_use else "refused") from None
    return bound


def bind_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket, mode 0600 in a folder of mode 0700. Replaces a stale socket."""
    ensure_private_folder(path.parent)
    remove_stale_socket(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(os.fspath(path))
    except OSError as error:
        bound.close()
        message = f"Cannot listen on {path}: {error.strerror or error}"
        raise UnsafeServerSetup(message, "Make the folder writable for this user") from None
    finally:
        os.umask(before)
    status = path.lstat()
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o177:
        bound.close()
        raise UnsafeServerSetup(
            f"{path} was replaced while the server started", "Check which other process writes to the folder"
        )
    bound.listen()  # from here on, remove_stale_socket() of another process refuses it
    return bound


def ensure_private_folder(folder: Path) -> Path:
    """Create a folder of mode 0700, or raise if an existing one is accessible to other users."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeServerSetup(f"{folder} is not a folder", "Remove it")
    if status.st_uid != os.getuid():
        raise UnsafeServerSetup(f"{folder} belongs to another user", "Remove it")
    if status.st_mode & 0o077:
        raise UnsafeServerSetup(
            f"{folder} is accessible to other users", f"Review its contents, then run: chmod 700 {folder}"
        )
    return folder


def remove_stale_socket(path: Path) -> None:
    """Remove a stale socket of this user; raise for anything else."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise UnsafeServerSetup(f"{path} exists and is not a Nerve socket", "Check what it is, and remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            message = f"A server is already listening on {path}"
            raise UnsafeServerSetup(message, "Use that server, or stop it first", "conflict")
    path.unlink()
