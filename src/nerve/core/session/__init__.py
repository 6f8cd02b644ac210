"""The session under the name that the design documents import; it is defined in `nerve.session`."""

from nerve.session import Session

__all__ = ["Session"]
