"""Short formats of durations, tokens and costs."""

from __future__ import annotations

from datetime import datetime

from nerve.core.limits import RunUsage


def format_duration_between(started_at: datetime | None, ended: datetime | None, now: datetime) -> str:
    """Format a duration, until `now` if not ended: 0.4s, 12s, 3m 05s, 2h 10m, 4d."""
    if started_at is None:
        return ""
    seconds = max(0.0, ((ended or now) - started_at).total_seconds())
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours < 48 else f"{hours // 24}d"


def format_short_duration(started_at: datetime | None, ended: datetime | None, now: datetime) -> str:
    """Format only the largest unit of a duration."""
    return format_duration_between(started_at, ended, now).split(" ")[0]


def format_token_count(count: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return f"{count:.0f}"


def format_cost(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 0.005 else ("<1¢" if cost else "")


def format_usage(usage: RunUsage) -> str:
    """Format tokens and cost: `1.2k tokens · $0.02`."""
    parts = (f"{format_token_count(usage.tokens)} tokens" if usage.tokens else "", format_cost(usage.cost))
    return " · ".join(part for part in parts if part)
