"""Callers: who asks, and from where, known from the door they came through and never from what they say."""

from __future__ import annotations

import getpass
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, from where, and what the token is for that was shown."""

    who: str
    via: str
    scope: str | None = None

    def about(self) -> dict[str, str]:
        """What is recorded beside who it was."""
        return {"via": self.via} | ({"scope": self.scope} if self.scope else {})


HERE = Caller("api", "api")
"""Code in the same process."""


def person(via: str) -> Caller:
    """Whoever sits before a screen of this process."""
    return Caller(f"{via}:{user()}", via)


def user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "unknown"
