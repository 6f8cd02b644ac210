"""Session: the names and the runs of one project."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.session.session import Session

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    """Import Session on first use: lists of stored runs need neither nodes nor an engine."""
    if name != "Session":
        raise AttributeError(f"module 'nerve.session' has no attribute '{name}'")
    from nerve.session.session import Session

    return Session
