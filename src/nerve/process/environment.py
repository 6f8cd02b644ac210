"""The environment of a child process: what it needs to run, and nothing of the engine's secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nerve.process.orphans import owner_variable

ALLOWED_VARIABLES = frozenset({"PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL", "TZ"})


def child_env(extra: Mapping[str, str]) -> dict[str, str]:
    """The allowed part of our own environment, whose process it is, and `extra`."""
    allowed = {name: value for name, value in os.environ.items() if _is_allowed(name)}
    return {**allowed, **owner_variable(), **extra}


def _is_allowed(name: str) -> bool:
    return name in ALLOWED_VARIABLES or name.startswith("LC_")
