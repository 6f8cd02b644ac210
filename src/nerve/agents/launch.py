"""Starting the program of an agent: what it gets of our environment, and what is said if it is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nerve.agents.provider import Unavailable
from nerve.process.environment import child_env


def agent_environment(passed_names: Sequence[str], *extras: Mapping[str, str]) -> dict[str, str]:
    """The few variables that every child gets, those of ours that are named, and what is given."""
    added = {name: os.environ[name] for name in passed_names if name in os.environ}
    for extra in extras:
        added |= extra
    return child_env(added)


@contextmanager
def translate_launch_errors(program: str, fix: str) -> Iterator[None]:
    """Turn a program that cannot be started into Unavailable."""
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        if error.filename != program:
            raise
        raise Unavailable(f"'{program}' cannot be started ({error.strerror}): {fix}") from error
