"""The tokens of a project: one file per scope, readable only by its owner."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import get_args

from nerve.api.callers import Scope
from nerve.project.ownership import is_own_token, make_token
from nerve.project.paths import token_file
from nerve.server.bind import UnsafeServerSetup, ensure_private_folder

TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")
"""256 bits in base64url, half of them random."""


def load_tokens(folder: Path) -> dict[Scope, str]:
    """Return the token of each scope, and create missing ones. Deleting a file rotates its token."""
    ensure_private_folder(folder)
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")
    return {scope: read_or_create_token(token_file(folder, scope)) for scope in get_args(Scope)}


def read_or_create_token(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return read_token(path)
    with os.fdopen(descriptor, "w") as file:
        new = make_token(path)
        file.write(f"{new}\n")
    return new


def read_token(path: Path) -> str:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UnsafeServerSetup(
            f"{path} is accessible to other users", "Remove it; the server creates a new one"
        )
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not TOKEN_PATTERN.fullmatch(text):
        raise UnsafeServerSetup(
            f"{path} does not contain a valid token", "Remove it; the server creates a new one"
        )
    if not is_own_token(path, text):  # another user may know it
        raise UnsafeServerSetup(
            f"The token in {path} was not created by this user on this machine",
            "Remove it; the server creates a new one",
        )
    return text
