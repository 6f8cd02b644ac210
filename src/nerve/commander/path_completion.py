"""The files that are offered while a path is typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from nerve.ui.fuzzy import best_matches

MAX_SCANNED_ENTRIES = 5000
"""Entries of a folder that are looked at."""
IGNORED_NAMES = frozenset({"__pycache__", "node_modules"})


def make_file_completer(folder: str | os.PathLike[str]) -> Callable[[str], Iterable[str]]:
    """What `Names.files` asks for, seen from a folder: paths begin as they were typed."""

    def files(typed: str) -> list[str]:
        above, slash, name = typed.rpartition("/")
        typed_folder = f"{above}{slash}"
        if typed == "~":
            return ["~/"]
        entries = list_folder_names(Path(folder, os.path.expanduser(typed_folder)))
        visible_entries = [entry for entry in entries if entry.startswith(".") == name.startswith(".")]
        return [typed_folder + entry for entry in best_matches(name, visible_entries, str)]

    return files


def list_folder_names(folder: Path) -> list[str]:
    """The names in a folder, folders with a slash; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as scan:
            entries = [
                f"{entry.name}/" if is_directory_entry(entry) else entry.name
                for entry in islice(scan, MAX_SCANNED_ENTRIES)
            ]
    except (OSError, ValueError):
        return []
    return sorted(entry for entry in entries if entry.rstrip("/") not in IGNORED_NAMES)


def is_directory_entry(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
