"""Leaves: what they see of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nerve.core.nodes.attempt import IdleClock, heard
from nerve.core.nodes.direct import DirectRuntime, Home


class LeafRuntime(DirectRuntime):
    """A leaf may emit, from any thread; what it executes itself is not recorded."""

    def __init__(self, path: str, forward: Callable[[str, str, dict[str, Any]], None], home: Home) -> None:
        super().__init__(None, home=home)
        self._path, self._forward = path, forward

    def hear(self, clock: IdleClock) -> None:
        self._clocks[self._path] = clock

    def _emitted(self, place: str, type: str, data: dict[str, Any]) -> None:
        heard(self._clocks, place)
        self._forward(self._path, type, data)
