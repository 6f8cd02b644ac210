"""The names of one project, and the door to its runs."""

from nerve.core.session.session import Session

__all__ = ["Session"]
