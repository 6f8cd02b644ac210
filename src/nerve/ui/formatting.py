"""Short formats of values, durations, tokens and costs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nerve.core.limits import RunUsage

if TYPE_CHECKING:
    from nerve.api.models import HealthResponse, QueueResponse, TriggerResponse, UsageResponse

SHORT_ID_CHARS = 6
"""Characters of an id that are shown: collisions are one in 16 million."""


def format_value(value: Any) -> str:
    """Format a value for use in a text: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def format_result(result: Any) -> str:
    """Format a result: a string unchanged, None as "", other values as JSON."""
    if result is None or isinstance(result, str):
        return result or ""
    return json.dumps(result, ensure_ascii=False, indent=2, default=str)


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


def format_elapsed(started_at: datetime | None, ended_at: datetime | None, now: datetime) -> str:
    """Format a duration in parentheses, as at the end of a row."""
    return f"({format_duration_between(started_at, ended_at, now)})" if started_at is not None else ""


def format_two_units(seconds: float) -> str:
    """Format a duration with its two largest units: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.3g} s"
    rest = round(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(number for number, (_, size) in enumerate(units) if rest >= size)
    parts = []
    for name, size in units[first : first + 2]:
        count, rest = divmod(rest, size)
        parts += [f"{count} {name}"] if count else []
    return " ".join(parts)


def format_token_count(count: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return f"{count:.0f}"


def format_file_size(size: int) -> str:
    """Return a number of bytes with its unit: `512 B`, `1.5 kB`."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def format_cost(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 0.005 else ("<1¢" if cost else "")


def format_usage(usage: RunUsage) -> str:
    """Format tokens and cost: `1.2k tokens · $0.02`."""
    parts = (f"{format_token_count(usage.tokens)} tokens" if usage.tokens else "", format_cost(usage.cost))
    return " · ".join(part for part in parts if part)


def format_usage_today(usage_response: UsageResponse) -> str:
    """Format today's usage; turns without a reported cost are listed as unknown, not zero."""
    used = RunUsage()
    used.spend(usage_response.today)
    parts = [text] if (text := format_usage(used)) else []
    if unknown := sum(
        int(model_usage.get("turns_without_cost", 0)) for model_usage in usage_response.models.values()
    ):
        parts.append(f"{count_noun(unknown, 'turn')} of unknown cost")
    elif used.turns and not parts:
        parts.append(f"{count_noun(used.turns, 'turn')} at no cost")
    return " · ".join(parts) or "nothing spent"


def status_lines(health: HealthResponse, usage: UsageResponse) -> list[str]:
    """Return the state of the store and the runs, and the usage of today, one line each."""
    counts = ", ".join(f"{number} {state}" for state, number in sorted(health.runs.items()))
    return [
        *([f"store: {health.loss}"] if health.loss else ()),
        *([f"engine: {health.engine}"] if health.engine else ()),
        f"runs: {counts or 'none'}",
        f"today: {format_usage_today(usage)}",
        *(f"held: {run_id}: {reason}" for run_id, reason in health.held.items()),
    ]


def format_caller(identity: str, via: str | None = None) -> str:
    """Format what started a run: `ada (cli)`, `browser`, `token run`, `run 4f3a2c`."""
    kind, _, name = identity.partition(":")
    match kind:
        case "unix":
            return f"{name} ({via})" if via and via != "unix socket" else name
        case "person":
            return f"{name} ({via})" if via else name
        case "run":
            return f"run {short_id(name)}"
        case "browser":
            return "browser (router)" if via == "router" else "browser"
        case _:
            return f"{kind} {name}".rstrip()


def format_queue_limits(queue: QueueResponse) -> str:
    """Return the limits of a queue: `5 at a time, 100/min, per tenant`."""
    limits = [f"{queue.concurrency} at a time"] if queue.concurrency is not None else []
    limits += [queue.rate] if queue.rate is not None else []
    limits += [f"per {queue.per}"] if queue.per is not None else []
    return ", ".join(limits) or "none"


def format_queue_notes(queue: QueueResponse) -> str:
    """Return why a queue grants no slots, or ""."""
    return ", ".join([*(["paused"] if queue.paused else []), *([] if queue.declared else ["not declared"])])


def format_trigger_notes(trigger: TriggerResponse) -> str:
    """Return why a trigger starts nothing, and what happened last; "" if there is nothing to say."""
    notes = [] if trigger.enabled else ["disabled"]
    if trigger.paused:
        notes.append(f"paused by {trigger.paused_by}" if trigger.paused_by else "paused")
    if trigger.queued:
        notes.append(f"{trigger.queued} queued")
    if trigger.skipped:
        notes.append(f"skipped: {trigger.skipped[0].reason}")
    if trigger.refused:
        notes.append(f"refused: {trigger.refused[0].reason}")
    return ", ".join(notes)


def format_trigger_time(at: datetime) -> str:
    """Return a time in the zone of this machine, to the second."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def count_noun(number: int, noun: str) -> str:
    """Return a count with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_table(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table whose columns are as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def short_id(run_id: str) -> str:
    """Return the end of a run id that is shown to the user."""
    return run_id[-SHORT_ID_CHARS:]
