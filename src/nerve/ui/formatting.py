"""Short formats of values, durations, tokens and costs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nerve.core.limits import RunUsage

if TYPE_CHECKING:
    from nerve.api.models import UsageResponse


def format_value(value: Any) -> str:
    """Format a value for use in a text: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


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


def format_elapsed(started_at: datetime | None, ended_at: datetime | None, now: datetime) -> str:
    return "" if started_at is None else f"({((ended_at or now) - started_at).total_seconds():.1f}s)"


def format_tokens_and_cost(usage: RunUsage) -> str:
    tokens = f"{usage.tokens:,} tokens" if usage.tokens else ""
    cost = f"${usage.cost:.2f}" if usage.cost else ""
    return " · ".join(part for part in (tokens, cost) if part)


def format_run_seconds(started_at: datetime, ended_at: datetime) -> str:
    """Format the duration of a run in a list: 12.3s, 3m05s."""
    seconds = (ended_at - started_at).total_seconds()
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds // 60)}m{int(seconds % 60):02}s"


def format_usage_today(usage_response: UsageResponse) -> str:
    """Format today's usage; turns without a reported cost are listed as unknown, not zero."""
    used = RunUsage()
    used.spend(usage_response.today)
    parts = [format_tokens_and_cost(used)] if format_tokens_and_cost(used) else []
    if unknown := sum(
        int(model_usage.get("turns_without_cost", 0)) for model_usage in usage_response.models.values()
    ):
        parts.append(f"{count_noun(unknown, 'turn')} of unknown cost")
    elif used.turns and not parts:
        parts.append(f"{count_noun(used.turns, 'turn')} at no cost")
    return " · ".join(parts) or "nothing spent"


def count_noun(number: int, noun: str) -> str:
    """Return a count with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
