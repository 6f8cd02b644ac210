"""The dataspace: facts, patterns that find them, and observers of their changes."""

from __future__ import annotations

from nerve.dataspace.dataspace import Dataspace
from nerve.dataspace.errors import Lagged, NotAPattern, NotARecord, VersionConflict
from nerve.dataspace.facts import Change, Fact
from nerve.dataspace.matchers import literal
from nerve.dataspace.pattern import Pattern, exactly, match
from nerve.dataspace.record import Record

__all__ = [
    "Change",
    "Dataspace",
    "Fact",
    "Lagged",
    "NotAPattern",
    "NotARecord",
    "Pattern",
    "Record",
    "VersionConflict",
    "exactly",
    "literal",
    "match",
]
