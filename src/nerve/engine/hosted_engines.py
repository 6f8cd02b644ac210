"""The engines that a loop has to itself, such as those of Temporal workflows, which share their session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine

_engines_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, LocalEngine] = WeakKeyDictionary()


def host_engine(engine: LocalEngine) -> None:
    """Let the sessions in the running loop use an engine."""
    _engines_by_loop[asyncio.get_running_loop()] = engine


def find_hosted_engine() -> LocalEngine | None:
    """Return the engine of the running loop; None if it has none of its own."""
    try:
        return _engines_by_loop.get(asyncio.get_running_loop())
    except RuntimeError:
        return None


class HostedEngines:
    """The engine of a session whose runs are executed in loops of their own: that of the running loop."""

    def __init__(self, get_other: Callable[[], Any] | None = None) -> None:
        """`get_other` returns the engine for code in any other loop."""
        self._get_other = get_other

    def __getattr__(self, name: str) -> Any:
        engine = find_hosted_engine()
        if engine is None and self._get_other is not None:
            engine = self._get_other()
        if engine is None:
            raise RuntimeError("This process executes runs in Temporal workflows only. Use the API server.")
        return getattr(engine, name)
