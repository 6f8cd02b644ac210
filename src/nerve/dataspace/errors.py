"""What can go wrong with facts.

NerveError
├── NotARecord    a value that is no record
├── NotAPattern   a value that is no pattern
├── OutOfDate     a change was proposed for a state of the space that is gone
└── Lagged        an observer did not keep up
"""

from __future__ import annotations

from nerve.errors import NerveError


class NotARecord(NerveError, ValueError):
    """A value that is no record; says what one looks like."""


class NotAPattern(NerveError, ValueError):
    """A value that is no pattern; says what is wrong with it."""


class VersionConflict(NerveError):
    """A change was proposed for a state of the space that is gone. Propose it again."""

    def __init__(self, proposed: int, expected: int) -> None:
        super().__init__(
            f"change {proposed} was proposed, but the next one is {expected}: the space changed meanwhile. "
            "Propose it again."
        )


class Lagged(NerveError):
    """An observer did not keep up with the changes."""

    def __init__(self, pattern: str, buffer: int) -> None:
        super().__init__(
            f"the observer of {pattern} is more than {buffer} changes behind. "
            "Observe again to start from what is there now, or give it a larger buffer."
        )
        self.pattern, self.buffer = pattern, buffer
