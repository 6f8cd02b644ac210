"""What tests of workflows and of stores can use."""

from nerve.testing.scripted import RecordedQuery, ScriptedProvider

__all__ = ["RecordedQuery", "ScriptedProvider"]
