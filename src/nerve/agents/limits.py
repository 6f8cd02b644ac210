"""Whether a text is about a limit, and when it says that it ends, for agents that have only words for it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

LIMIT = re.compile(
    r"(?<![\w:.#/])(?<!line )429\b(?!\.\d)|rate.?limit|usage limit|hit your (\w+ )?limit|too many requests"
    r"|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
AFTER = re.compile(r"retry[-_ ]?after\W{1,4}(\d+(?:\.\d+)?)\W?(ms|m)?", re.IGNORECASE)
RESETS = re.compile(r"resets?[-_ ]?at\W{1,4}(\d{10})(?!\d)", re.IGNORECASE)
MOMENT = re.compile(
    r"resets?(?: at)?:? (\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)", re.IGNORECASE
)
CLOCK = re.compile(
    r"(?:resets?|try again)(?: at)?:? (\d{1,2})(?::(\d\d))? ?([ap]m)?\b(?: ?\(?(UTC|GMT|[A-Z]\w+/\w+)\)?)?",
    re.IGNORECASE,
)


def resets_at(text: str, now: float | None = None) -> float | None:
    """When a limit ends, in seconds since 1970, if the text says it in a way that we know."""
    now = time.time() if now is None else now
    if found := RESETS.search(text):
        return float(found[1])
    if found := AFTER.search(text):
        return now + float(found[1]) * {"ms": 0.001, "m": 60}.get((found[2] or "").lower(), 1)
    if found := MOMENT.search(text):
        return datetime.fromisoformat(found[1]).timestamp()
    return clock(text, now)


def clock(text: str, now: float) -> float | None:
    """A time of day, which is the next one; it leaves the seconds out."""
    found = CLOCK.search(text)
    if found is None or not (found[2] or found[3]):
        return None
    hour, minute = int(found[1]), int(found[2] or 0)
    if half := (found[3] or "").lower():
        hour = hour % 12 + 12 * (half == "pm")
    here = datetime.fromtimestamp(now, zone(found[4]))
    try:
        at = here.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(minutes=1)
    except ValueError:
        return None
    return (at if at > here else at + timedelta(days=1)).timestamp()


def zone(name: str | None) -> tzinfo | None:
    """Where the time is told for: here, if nothing is said or known."""
    if not name or name.upper() in ("UTC", "GMT"):
        return UTC if name else None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
