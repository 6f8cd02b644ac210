"""Helpers for tests of workflows and stores."""

from nerve.testing.fakes import Fake
from nerve.testing.scripted import RecordedQuery, ScriptedProvider
from nerve.testing.session import TestSession, test_session
from nerve.testing.virtual_clock import VirtualClock

__all__ = ["Fake", "RecordedQuery", "ScriptedProvider", "TestSession", "VirtualClock", "test_session"]
