"""Fixtures of the session tests: those of the core."""

from core.conftest import deadline, file, session

__all__ = ["deadline", "file", "session"]
