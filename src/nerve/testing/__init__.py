"""Helpers for tests of workflows and stores."""

from nerve.testing.scripted import RecordedQuery, ScriptedProvider

__all__ = ["RecordedQuery", "ScriptedProvider"]
