"""Leaves: executed outside the body, their events written in the background, attempt after attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from nerve.core.nodes.attempt import IdleClock
from nerve.core.nodes.direct import DirectRuntime


class LeafRuntime(DirectRuntime):
    """What a leaf sees: it may emit, from any thread; what it executes itself is not recorded."""

    def __init__(self, path: str, emit: Callable[[str, str, dict[str, Any]], None], loop: Any) -> None:
        super().__init__(None)
        self._path, self._emit, self._loop = path, emit, loop
        self._thread = threading.get_ident()
        self._clock: IdleClock | None = None

    def hear(self, clock: IdleClock) -> None:
        self._clock = clock

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        if threading.get_ident() == self._thread:
            self._on_loop(type, data)
            return
        try:
            self._loop.call_soon_threadsafe(self._on_loop, type, data)
        except RuntimeError:
            pass  # the loop is closed: the run is not driven any more

    def _on_loop(self, type: str, data: dict[str, Any]) -> None:
        if self._clock is not None:
            self._clock.heard()
        self._emit(self._path, type, data)


def idempotency_key(run_id: str, path: str) -> str:
    """The same for every attempt of one step of one run."""
    return sha256(f"{run_id}\n{path}".encode()).hexdigest()[:32]
