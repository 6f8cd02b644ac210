"""The tests of the session use the fixtures of the core."""

from core.conftest import deadline, file, session

__all__ = ["deadline", "file", "session"]
