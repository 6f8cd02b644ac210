"""Facts and their changes."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from nerve.dataspace.canonical_json import Json
from nerve.dataspace.record import Record
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """An asserted record with its author, time and version."""

    record: Record
    id: str
    """The hash of the record's identity: a newer fact with the same id replaces this one."""
    asserted_by: str
    at: float
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """The assertion of a fact, which may replace another, or its retraction."""

    kind: Literal["asserted", "retracted"]
    fact: Fact
    version: int
    """The number of the change in the dataspace."""
    captures: dict[str, Json] = field(default_factory=dict)
    """The captures of the observer's pattern."""
    replaced: Fact | None = None
    """The older fact with the same id that this one replaces."""
    present: bool = False
    """Whether the fact existed before the observer started."""
    by: str = ""
    """The author of the change."""
