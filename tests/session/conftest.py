"""Fixtures of the session tests: those of the core."""

from core.conftest import file, session

__all__ = ["file", "session"]
