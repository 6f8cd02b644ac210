"""How a turn of Codex failed: permanently, or until a rate limit ends."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

LIMIT_ERRORS = ("usageLimitExceeded", "rateLimitExceeded")
CLOCK_TEXT = re.compile(r"try again at (?:(\w{3})\w* (\d+)\w*, (\d{4}),? )?(\d+:\d\d [AP]M)", re.IGNORECASE)
DURATION_TEXT = re.compile(
    r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)(?:econd|inute|our|ay|in)?s?(?![a-z])", re.IGNORECASE
)
SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def is_limit_error(error: Mapping[str, Any]) -> bool:
    match error.get("codexErrorInfo"):
        case str(word):
            return word in LIMIT_ERRORS
        case {**kinds}:
            return any(
                isinstance(kind, dict) and kind.get("httpStatusCode") == 429 for kind in kinds.values()
            )
    return False


def codex_reset_time(windows: Mapping[str, Any], message: str, now: float | None = None) -> float | None:
    """Return when the limit ends, from the account's exhausted windows or from the message."""
    now = time.time() if now is None else now
    limit_windows = [windows.get(name) for name in ("primary", "secondary")]
    reset_times = [
        float(window["resetsAt"])
        for window in limit_windows
        if window and window.get("usedPercent", 0) >= 100 and window.get("resetsAt")
    ]
    return max(reset_times) if reset_times else _reset_time_in_message(message, now)


def _reset_time_in_message(message: str, now: float) -> float | None:
    message = re.sub(r"\s", " ", message)  # some messages have a narrow space before AM and PM
    if clock := CLOCK_TEXT.search(message):
        return _next_time_of_day(clock, now)
    _, marker, rest = message.partition("try again in ")
    spans = DURATION_TEXT.findall(rest)
    if not marker or not spans:
        return None
    return now + sum(float(amount) * SECONDS_BY_UNIT[unit.lower()] for amount, unit in spans)


def _next_time_of_day(clock: re.Match[str], now: float) -> float | None:
    """Return the next occurrence of a time of day in local time, plus a minute for the missing seconds."""
    month, day, year, hour = clock.groups()
    local_now = datetime.fromtimestamp(now)
    date = f"{month} {day} {year}" if month else local_now.strftime("%b %d %Y")
    try:
        reset = datetime.strptime(f"{date} {hour.upper()}", "%b %d %Y %I:%M %p") + timedelta(minutes=1)
    except ValueError:
        return None
    if not month and reset <= local_now:
        reset += timedelta(days=1)
    return reset.timestamp()
