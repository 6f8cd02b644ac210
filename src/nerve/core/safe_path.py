"""Paths that are built from user input."""

from __future__ import annotations

import os
from pathlib import Path


def resolve_inside(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Return the resolved path, with symbolic links followed; ValueError if it is outside of `root`."""
    base = os.path.realpath(root)
    resolved = os.path.realpath(os.path.join(base, path))
    if os.path.commonpath([base, resolved]) != base:
        raise ValueError(f"{os.fspath(path)!r} is outside of {os.fspath(root)}")
    return Path(resolved)
