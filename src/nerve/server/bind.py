"""Where the server listens: loopback, and a Unix socket that nobody else can open."""

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
    """Something is not as it must be for the server to start; the fix says what to do about it."""

    def __init__(self, message: str, fix: str, code: str = "refused") -> None:
        super().__init__(f"{message}. {fix}")
        self.message, self.fix, self.code = message, fix, code


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bind_tcp(host: str, port: int, wide: bool = False) -> socket.socket:
    """A socket on this machine only; on others only if that was asked for in so many words."""
    if not 0 <= port <= MAX_PORT:
        fix = f"Give --port a number from 0 to {MAX_PORT}; 0 is any that is free"
        raise UnsafeServerSetup(f"{port} is no port", fix, "bad_request")
    if not wide and not is_loopback(host):
        message = f"{host} can be reached from other machines, and what is sent there can be read on the way"
        fix = "Listen on 127.0.0.1 (--host), or say that it is meant (--wide)"
        raise UnsafeServerSetup(message, fix, "bad_request")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        message = f"'{host}' is no address of this machine"
        raise UnsafeServerSetup(
            message, "Give --host one that is, such as 127.0.0.1", "bad_request"
        ) from None
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()  # two may have the same address until one of them listens
    except OSError as error:
        bound.close()
        message = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
        is_in_use = error.errno == errno.EADDRINUSE
        fix = "Give another one: --port, or --host"
        raise UnsafeServerSetup(message, fix, "conflict" if is_in_use else "refused") from None
    return bound


def bind_unix(path: Path) -> socket.socket:
    """A Unix socket with mode 0600 in a folder with mode 0700; a stale one of ours is replaced."""
    ensure_private_folder(path.parent)
    remove_stale_socket(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(os.fspath(path))
    except OSError as error:
        bound.close()
        message = f"cannot listen on {path}: {error.strerror or error}"
        raise UnsafeServerSetup(message, "Let this user write into that folder") from None
    finally:
        os.umask(before)
    status = path.lstat()
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o177:
        bound.close()
        raise UnsafeServerSetup(f"{path} is not as it was made", "See who else writes into that folder")
    bound.listen()  # from here on nobody takes it for one that was left behind
    return bound


def ensure_private_folder(folder: Path) -> Path:
    """Make a folder that only we can look into, or refuse one that others can."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeServerSetup(f"{folder} is not a folder", "Remove it")
    if status.st_uid != os.getuid():
        raise UnsafeServerSetup(f"{folder} belongs to somebody else", "Remove it")
    if status.st_mode & 0o077:
        raise UnsafeServerSetup(
            f"others can look into {folder}", f"Look what is in it, then: chmod 700 {folder}"
        )
    return folder


def remove_stale_socket(path: Path) -> None:
    """Remove a socket that we left behind; anything else is left alone and refused."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise UnsafeServerSetup(
            f"{path} is in the way, and is no socket of ours", "Look what it is, and remove it"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            message = f"a server is listening on {path} already"
            raise UnsafeServerSetup(message, "Ask that one, or stop it first", "conflict")
    path.unlink()
