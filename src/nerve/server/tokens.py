"""The tokens of a project: one file for each scope, which only its owner can read."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import get_args

from nerve.api.operations import Scope
from nerve.ownership import is_own_token, make_token
from nerve.places import token_file
from nerve.server.listening import Unsafe, private_folder

TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
"""256 bits, half of them random."""


def tokens(folder: Path) -> dict[Scope, str]:
    """The token of each scope; those that are missing are made. Removing a file makes a new one."""
    private_folder(folder)
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")
    return {scope: token(token_file(folder, scope)) for scope in get_args(Scope)}


def token(path: Path) -> str:
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return kept(path)
    with os.fdopen(made, "w") as file:
        new = make_token(path)
        file.write(f"{new}\n")
    return new


def kept(path: Path) -> str:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Unsafe(f"others can read or change {path}", "Remove it: a new one is made")
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not TOKEN.fullmatch(text):
        raise Unsafe(f"there is no token in {path}", "Remove it: a new one is made")
    if not is_own_token(path, text):  # another user may know it
        raise Unsafe(
            f"the token in {path} was not made by this user on this machine", "Remove it: a new one is made"
        )
    return text
