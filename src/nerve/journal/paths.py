"""Paths of steps: which lies at, below or around which."""

from __future__ import annotations

from collections.abc import Container

ROOT_PATH = "/"
"""The settle key of the run itself."""
REQUEST_SUFFIX = "~request"
RESPONSE_SUFFIX = "~response"
"""End the paths of the request and the response of a detached prompt, which start with that of the prompt."""


def is_within_step(path: str, ancestor: str) -> bool:
    """Whether a path is a step, lies below it, or is one of its checks and retries."""
    return path.startswith(ancestor) and (len(path) == len(ancestor) or path[len(ancestor)] in "/~")


def is_in_any_step(path: str, paths: Container[str]) -> bool:
    """Whether a path is at or inside one of many steps."""
    # Looked up by its prefixes: comparing with every step would be quadratic for large resets.
    cuts = (at for at, letter in enumerate(path) if letter in "/~")
    return path in paths or any(path[:at] in paths for at in cuts)


def is_reset_with(path: str, reset_path: str) -> bool:
    """Whether the reset of a step applies to a path.

    The request of a detached prompt precedes the step of its agent, which may run again without it.
    """
    return is_within_step(path, reset_path) and not path.startswith(REQUEST_SUFFIX, len(reset_path))


def is_reset_with_any(path: str, reset_paths: Container[str]) -> bool:
    """Whether the reset of one of many steps applies to a path."""
    cuts = (at for at, letter in enumerate(path) if letter in "/~")
    return path in reset_paths or any(
        path[:at] in reset_paths and not path.startswith(REQUEST_SUFFIX, at) for at in cuts
    )


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
