"""Helpers for tests of workflows and stores."""

from nerve.testing.fakes import Fake
from nerve.testing.replay_check import assert_replays
from nerve.testing.scripted import RecordedQuery, ScriptedProvider
from nerve.testing.session import TestSession, test_session
from nerve.testing.virtual_clock import VirtualClock

__all__ = [
    "Fake",
    "RecordedQuery",
    "ScriptedProvider",
    "TestSession",
    "VirtualClock",
    "assert_replays",
    "test_session",
]
