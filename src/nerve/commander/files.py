"""The files that are offered while a path is typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from nerve.commander.core.fuzzy import best

LOOKED_AT = 5000
"""Entries of a folder that are looked at."""
LEFT_OUT = frozenset({"__pycache__", "node_modules"})


def files_of(folder: str | os.PathLike[str]) -> Callable[[str], Iterable[str]]:
    """What `Names.files` asks for, seen from a folder: paths begin as they were typed."""

    def files(typed: str) -> list[str]:
        above, slash, name = typed.rpartition("/")
        begin = f"{above}{slash}"
        if typed == "~":
            return ["~/"]
        entries = inside(Path(folder, os.path.expanduser(begin)))
        shown = [each for each in entries if each.startswith(".") == name.startswith(".")]
        return [begin + each for each in best(name, shown, str)]

    return files


def inside(folder: Path) -> list[str]:
    """The names in a folder, folders with a slash; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as found:
            entries = [f"{each.name}/" if is_folder(each) else each.name for each in islice(found, LOOKED_AT)]
    except (OSError, ValueError):
        return []
    return sorted(each for each in entries if each.rstrip("/") not in LEFT_OUT)


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
