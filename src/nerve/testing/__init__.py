"""Helpers for tests of workflows and stores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.testing.fakes import Fake
    from nerve.testing.replay_check import assert_replays
    from nerve.testing.scripted import RecordedQuery, ScriptedProvider
    from nerve.testing.session import TestSession, test_session
    from nerve.testing.virtual_clock import VirtualClock

_MODULES = {
    "Fake": "nerve.testing.fakes",
    "RecordedQuery": "nerve.testing.scripted",
    "ScriptedProvider": "nerve.testing.scripted",
    "TestSession": "nerve.testing.session",
    "VirtualClock": "nerve.testing.virtual_clock",
    "assert_replays": "nerve.testing.replay_check",
    "test_session": "nerve.testing.session",
}

__all__ = [
    "Fake",
    "RecordedQuery",
    "ScriptedProvider",
    "TestSession",
    "VirtualClock",
    "assert_replays",
    "test_session",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a scripted provider needs neither the engine nor the core."""
    if name not in _MODULES:
        raise AttributeError(f"module 'nerve.testing' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
