"""Facts asserted until they are retracted, patterns that find them, observers that see them change."""

from __future__ import annotations

from nerve.dataspace.errors import Lagged, NotAPattern, NotARecord, OutOfDate
from nerve.dataspace.facts import Change, Fact
from nerve.dataspace.pattern import Pattern, exactly, match
from nerve.dataspace.record import Record
from nerve.dataspace.shapes import literal
from nerve.dataspace.space import Dataspace

__all__ = [
    "Change",
    "Dataspace",
    "Fact",
    "Lagged",
    "NotAPattern",
    "NotARecord",
    "OutOfDate",
    "Pattern",
    "Record",
    "exactly",
    "literal",
    "match",
]
