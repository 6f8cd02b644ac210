"""Bad usage: one clear sentence and exit code 2."""

from __future__ import annotations


class UsageError(Exception):
    """What was asked for cannot be done; the message says what can."""
