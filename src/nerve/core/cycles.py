"""Cycles of dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter


def find_cycle(depends_on: Mapping[str, list[str]]) -> list[str]:
    """Return the names along a cycle, each before one that depends on it, the first repeated at the end."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
