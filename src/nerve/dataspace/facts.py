"""Facts, and how they change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nerve.dataspace.canonical_json import Json
from nerve.dataspace.record import Record


@dataclass(frozen=True, slots=True)
class Fact:
    """A record that is asserted: who asserted it, when, and with which change of the space."""

    record: Record
    id: str
    """The hash of the record's identity: a newer fact with the same id replaces this one."""
    asserted_by: str
    at: float
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """A fact was asserted, perhaps in place of another, or retracted."""

    kind: Literal["asserted", "retracted"]
    fact: Fact
    version: int
    """The number of the change; the space counts them."""
    captures: dict[str, Json] = field(default_factory=dict)
    """What the observer's pattern captured of the fact."""
    replaced: Fact | None = None
    """The older fact with the same id that is gone with this."""
    present: bool = False
    """The fact was there before the observer."""
    by: str = ""
    """Who made the change."""
