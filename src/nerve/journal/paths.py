"""Paths of steps: which lies at, below or around which."""

from __future__ import annotations

from collections.abc import Container

ROOT_PATH = "/"
"""The settle key of the run itself."""


def is_within_step(path: str, ancestor: str) -> bool:
    """Whether a path is a step, lies below it, or is one of its checks and retries."""
    return path.startswith(ancestor) and (len(path) == len(ancestor) or path[len(ancestor)] in "/~")


def is_in_any_step(path: str, paths: Container[str]) -> bool:
    """Whether a path is at or inside one of many steps."""
    # Looked up by its prefixes: comparing with every step would be quadratic for large resets.
    cuts = (at for at, letter in enumerate(path) if letter in "/~")
    return path in paths or any(path[:at] in paths for at in cuts)


def is_below_leaf(path: str, leaves: Container[str]) -> bool:
    """Whether a path lies below a leaf; the body does not see what a leaf requests itself."""
    while path := path.rpartition("/")[0]:
        if path in leaves:
            return True
    return False


def ancestor_paths(path: str) -> list[str]:
    """Return the paths above a path, outermost first."""
    cuts = [at for at, letter in enumerate(path) if letter == "/" and at > 0]
    return [path[:at] for at in cuts]
