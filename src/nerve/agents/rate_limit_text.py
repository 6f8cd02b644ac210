"""Detect rate limits and their reset times in messages of agents that report them only as text."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

LIMIT_TEXT = re.compile(
    r"(?<![\w:.#/])(?<!line )429\b(?!\.\d)|rate.?limit|usage limit|hit your (\w+ )?limit|too many requests"
    r"|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
RETRY_AFTER_TEXT = re.compile(r"retry[-_ ]?after\W{1,4}(\d+(?:\.\d+)?)\W?(ms|m)?", re.IGNORECASE)
RESETS_AT_TEXT = re.compile(r"resets?[-_ ]?at\W{1,4}(\d{10})(?!\d)", re.IGNORECASE)
RESET_DATE_TEXT = re.compile(
    r"resets?(?: at)?:? (\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)", re.IGNORECASE
)
RESET_CLOCK_TEXT = re.compile(
    r"(?:resets?|try again)(?: at)?:? (\d{1,2})(?::(\d\d))? ?([ap]m)?\b(?: ?\(?(UTC|GMT|[A-Z]\w+/\w+)\)?)?",
    re.IGNORECASE,
)


def parse_reset_time(text: str, now: float | None = None) -> float | None:
    """Return when a rate limit ends, as a Unix timestamp, if the text says so in a known form."""
    now = time.time() if now is None else now
    if match := RESETS_AT_TEXT.search(text):
        return float(match[1])
    if match := RETRY_AFTER_TEXT.search(text):
        return now + float(match[1]) * {"ms": 0.001, "m": 60}.get((match[2] or "").lower(), 1)
    if match := RESET_DATE_TEXT.search(text):
        return datetime.fromisoformat(match[1]).timestamp()
    return parse_clock_time(text, now)


def parse_clock_time(text: str, now: float) -> float | None:
    """Parse the next occurrence of a time of day; one minute is added because the seconds are missing."""
    match = RESET_CLOCK_TEXT.search(text)
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if half := (match[3] or "").lower():
        hour = hour % 12 + 12 * (half == "pm")
    local_now = datetime.fromtimestamp(now, parse_timezone(match[4]))
    try:
        reset = local_now.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(minutes=1)
    except ValueError:
        return None
    return (reset if reset > local_now else reset + timedelta(days=1)).timestamp()


def parse_timezone(name: str | None) -> tzinfo | None:
    """Return the time zone by name; None (local time) if it is missing or unknown."""
    if not name or name.upper() in ("UTC", "GMT"):
        return UTC if name else None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
