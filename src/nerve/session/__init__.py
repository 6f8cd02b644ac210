"""Session: the names and the runs of one project."""

from nerve.session.session import Session

__all__ = ["Session"]
