"""What tests of workflows and of stores can use."""

from nerve.testing.scripted import Asked, ScriptedProvider

__all__ = ["Asked", "ScriptedProvider"]
