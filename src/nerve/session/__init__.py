"""The names of one project, and the door to its runs."""

from nerve.session.session import Session

__all__ = ["Session"]
