"""Paths that were made from what somebody wrote."""

from __future__ import annotations

import os
from pathlib import Path


def resolve_inside(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """The path in a folder, with all links followed; ValueError for one that leads out of it."""
    base = os.path.realpath(root)
    resolved = os.path.realpath(os.path.join(base, path))
    if os.path.commonpath([base, resolved]) != base:
        raise ValueError(f"{os.fspath(path)!r} leads out of {os.fspath(root)}")
    return Path(resolved)
