"""Errors of the dataspace.

NerveError
├── NotARecord        a value is not a record
├── NotAPattern       a value is not a pattern
├── VersionConflict   the dataspace changed after changes were staged
└── Lagged            an observer did not keep up
"""

from __future__ import annotations

from nerve.errors import NerveError


class NotARecord(NerveError, ValueError):
    """A value is not a record; the message shows the syntax."""


class NotAPattern(NerveError, ValueError):
    """A value is not a pattern; the message says why."""


class VersionConflict(NerveError):
    """The dataspace changed after changes were staged; stage them again."""

    def __init__(self, proposed: int, expected: int) -> None:
        super().__init__(
            f"Version conflict: got change {proposed}, expected {expected}. Stage the changes again."
        )


class Lagged(NerveError):
    """An observer did not keep up with the changes."""

    def __init__(self, pattern: str, buffer: int) -> None:
        super().__init__(
            f"The observer of {pattern} lags by more than {buffer} changes. "
            "Observe again to start from the current facts, or use a larger buffer."
        )
        self.pattern, self.buffer = pattern, buffer
