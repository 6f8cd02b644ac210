"""Callers: who asks, and from where, known from the door they came through and never from what they say."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, what the token is for that was shown, and the process, if it is one of this machine.

    `via` is the door, or the screen that a process of our own user says it is.
    """

    identity: str
    via: str
    scope: str | None = None
    pid: int | None = None

    def audit_fields(self) -> dict[str, Any]:
        """What is recorded beside who it was."""
        fields = {"via": self.via, "scope": self.scope, "pid": self.pid}
        return {name: value for name, value in fields.items() if value is not None}


LOCAL_CALLER = Caller("api", "api")
"""Code in the same process."""


def person_caller(via: str) -> Caller:
    """Whoever sits before a screen of this process."""
    return Caller(f"unix:{current_user_name()}", via, pid=os.getpid())


def current_user_name() -> str:
    """The name of the user whose process this is, whatever its environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without a name
        return str(os.getuid())
