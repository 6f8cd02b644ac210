"""Callers: who sends a request and from where, taken from the connection, never from the request."""

from __future__ import annotations

import os
import pwd
from typing import Any, Literal

from nerve.core.people import PERSON_IDENTITY
from nerve.lazy_dataclass import dataclass

Scope = Literal["read", "answer", "run", "admin"]
"""What an operation needs, and the tokens of a project."""
Grant = Literal["read", "answer", "run", "member", "admin"]
"""What a caller may do; `member`, for people, is `answer` and `run` together."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity of the caller, the scope of its token, and its process or address.

    `via` is the transport, or the user interface that a process of the same user claims to be.
    """

    identity: str
    via: str
    scope: Grant | None = None
    pid: int | None = None
    address: str | None = None
    """The address of the client, if it is connected over a network."""

    @property
    def person(self) -> str | None:
        """The name of the person who has signed in, if it is one."""
        kind, _, name = self.identity.partition(PERSON_IDENTITY)
        return name if name and not kind else None

    def to_start_data(self, via: str | None = None) -> dict[str, str]:
        """Return what the start of a run records of its caller."""
        data = {"by": self.identity, "via": via or self.via}
        return data if self.address is None else data | {"address": self.address}

    def to_event_data(self) -> dict[str, Any]:
        """Return what the events of commands record of the caller."""
        return {"by": self.identity, **self.audit_fields()}

    def audit_fields(self) -> dict[str, Any]:
        """Return the fields to record next to the identity."""
        fields = {"via": self.via, "scope": self.scope, "pid": self.pid, "address": self.address}
        return {name: value for name, value in fields.items() if value is not None}


LOCAL_CALLER = Caller("api", "api")
"""Code in the same process."""


def person_caller(via: str) -> Caller:
    """Return the caller for the user of an interface in this process."""
    return Caller(f"unix:{current_user_name()}", via, pid=os.getpid())


def current_user_name() -> str:
    """Return the name of the user that owns this process, regardless of its environment."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # the uid has no user name
        return str(os.getuid())
