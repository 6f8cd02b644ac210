"""Starting an agent's program: its environment, and the error if it cannot be started."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nerve.agents.provider import Unavailable
from nerve.process.environment import child_env

CLIENT_INFO = {"name": "nerve", "title": "nerve", "version": "0"}
"""How Nerve introduces itself to an agent."""


def agent_environment(passed_names: Sequence[str], *extras: Mapping[str, str]) -> dict[str, str]:
    """Return the default variables of child processes, the named ones of this process, and `extras`."""
    added = {name: os.environ[name] for name in passed_names if name in os.environ}
    for extra in extras:
        added |= extra
    return child_env(added)


async def import_library(module: str, provider: str) -> Any:
    """Import a library in a thread, because it takes most of a second."""
    try:
        return await asyncio.to_thread(importlib.import_module, module)
    except ImportError as error:
        raise missing_library_error(error, provider) from error


def missing_library_error(error: ImportError, provider: str) -> Unavailable:
    return Unavailable(
        f"Provider '{provider}' needs a library ({error}): pip install '.[{provider}]' in the clone of Nerve"
    )


@contextmanager
def translate_launch_errors(program: str, fix: str) -> Iterator[None]:
    """Raise Unavailable if the program cannot be started."""
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        if error.filename != program:
            raise
        raise Unavailable(f"Cannot start '{program}' ({error.strerror}): {fix}") from error
