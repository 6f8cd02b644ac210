"""How a turn of Codex failed: for good, or until a limit ends."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

LIMITS = ("usageLimitExceeded", "rateLimitExceeded")
CLOCK = re.compile(r"try again at (?:(\w{3})\w* (\d+)\w*, (\d{4}),? )?(\d+:\d\d [AP]M)", re.IGNORECASE)
SPAN = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)(?:econd|inute|our|ay|in)?s?(?![a-z])", re.IGNORECASE)
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def is_limit(error: Mapping[str, Any]) -> bool:
    match error.get("codexErrorInfo"):
        case str(word):
            return word in LIMITS
        case {**kinds}:
            return any(
                isinstance(kind, dict) and kind.get("httpStatusCode") == 429 for kind in kinds.values()
            )
    return False


def resets_at(windows: Mapping[str, Any], message: str, now: float | None = None) -> float | None:
    """When the limit ends, by the account's windows that are used up, else by the words of the message."""
    now = time.time() if now is None else now
    found = [windows.get(name) for name in ("primary", "secondary")]
    ends = [
        float(window["resetsAt"])
        for window in found
        if window and window.get("usedPercent", 0) >= 100 and window.get("resetsAt")
    ]
    return max(ends) if ends else _said(message, now)


def _said(message: str, now: float) -> float | None:
    message = re.sub(r"\s", " ", message)  # some write a narrow space before AM and PM
    if clock := CLOCK.search(message):
        return _at(clock, now)
    _, found, rest = message.partition("try again in ")
    spans = SPAN.findall(rest)
    if not found or not spans:
        return None
    return now + sum(float(amount) * SECONDS[unit.lower()] for amount, unit in spans)


def _at(clock: re.Match[str], now: float) -> float | None:
    """A time of day is the next one, in the zone that we and the program share; it leaves the seconds out."""
    month, day, year, hour = clock.groups()
    here = datetime.fromtimestamp(now)
    date = f"{month} {day} {year}" if month else here.strftime("%b %d %Y")
    try:
        found = datetime.strptime(f"{date} {hour.upper()}", "%b %d %Y %I:%M %p") + timedelta(minutes=1)
    except ValueError:
        return None
    if not month and found <= here:
        found += timedelta(days=1)
    return found.timestamp()
