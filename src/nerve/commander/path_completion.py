"""Completion of file paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from nerve.ui.fuzzy import best_matches

MAX_SCANNED_ENTRIES = 5000
"""Maximum number of directory entries that are read."""
IGNORED_NAMES = frozenset({"__pycache__", "node_modules"})


def make_file_completer(folder: str | os.PathLike[str]) -> Callable[[str], Iterable[str]]:
    """Return the function for `CompletionNames.files`; completed paths keep the typed prefix."""

    def files(typed: str) -> list[str]:
        parent, slash, name = typed.rpartition("/")
        typed_folder = f"{parent}{slash}"
        if typed == "~":
            return ["~/"]
        entries = list_folder_names(Path(folder, os.path.expanduser(typed_folder)))
        visible_entries = [entry for entry in entries if entry.startswith(".") == name.startswith(".")]
        return [typed_folder + entry for entry in best_matches(name, visible_entries, str)]

    return files


def list_folder_names(folder: Path) -> list[str]:
    """Return the names in a directory, subdirectories with a slash; empty if it cannot be read."""
    try:
        with os.scandir(folder) as scan:
            entries = [
                f"{entry.name}/" if os.path.isdir(entry) else entry.name
                for entry in islice(scan, MAX_SCANNED_ENTRIES)
            ]
    except (OSError, ValueError):
        return []
    return sorted(entry for entry in entries if entry.rstrip("/") not in IGNORED_NAMES)
