"""The environment of child processes, without the secrets of the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nerve.process.orphans import owner_variable

ALLOWED_VARIABLES = frozenset({"PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL", "TZ"})


def child_env(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed variables of this process, the owner variable, and `extra`."""
    allowed = {
        name: value
        for name, value in os.environ.items()
        if (name in ALLOWED_VARIABLES or name.startswith("LC_"))
    }
    return {**allowed, **owner_variable(), **extra}
