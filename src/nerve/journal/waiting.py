"""What a waiting run waits for, as a phrase: `for signal shipped (key 42)`, `until 14:05`, `for 3 gates`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from nerve.core.json_codec import encode_json
from nerve.journal.events import (
    GateWaiting,
    MessageWaiting,
    QueueWaiting,
    SignalWaiting,
    TimerStarted,
    WaitOpened,
)

MAX_SHOWN_CHARS = 60
"""Characters of a question or a pattern."""
MAX_SHOWN_WAITS = 3
"""Waits that are described one by one; more gates, and more child runs, are counted."""


def describe_waits(
    waits: Iterable[WaitOpened], children: Mapping[str, str | None] | None = None, now: datetime | None = None
) -> str | None:
    """Return what a run waits for; None if nothing is known.

    `children` are the child runs that wait, by id, and what each of them waits for.
    """
    opened, children = list(waits), children or {}
    gates = [wait for wait in opened if isinstance(wait, GateWaiting)]
    others = [wait for wait in opened if not isinstance(wait, GateWaiting | TimerStarted)]
    subjects = [f"{len(gates)} gates"] if len(gates) > 1 else list(map(describe_subject, gates))
    other_subjects = list(dict.fromkeys(map(describe_subject, others)))
    subjects += other_subjects[:MAX_SHOWN_WAITS]
    if len(other_subjects) > MAX_SHOWN_WAITS:
        subjects.append(f"{len(other_subjects) - MAX_SHOWN_WAITS} more")
    subjects += describe_children(children)
    deadlines = [
        wait.deadline for wait in opened if isinstance(wait, TimerStarted) and wait.deadline is not None
    ]
    phrases = [f"for {join_subjects(subjects)}"] if subjects else []
    phrases += [f"until {format_time(min(deadlines), now)}"] if deadlines else []
    return ", ".join(phrases) or None


def describe_subject(wait: WaitOpened) -> str:
    """Return what a wait is for, without a preposition."""
    match wait:
        case GateWaiting(prompt=prompt):
            return f'gate "{shorten(prompt)}"'
        case SignalWaiting(patterns=dict() as patterns):
            return " or ".join(map(describe_pattern, patterns.values()))
        case SignalWaiting(label=label, key=key):
            return describe_signal(label, key)
        case MessageWaiting(channel=channel):
            return f'message "{shorten(channel)}"'
        case QueueWaiting(queue=queue):
            return f'queue "{queue}"'
    return wait.type.partition("_")[0]


def describe_pattern(pattern: Any) -> str:
    match pattern:
        case ["signal", str(label), dict(fields)]:
            return describe_signal(label, fields.get("key"))
        case ["signal", str(label)]:
            return describe_signal(label, None)
    return f"fact {shorten(encode_json(pattern))}"


def describe_signal(label: str | None, key: Any) -> str:
    return f"signal {label}" + (f" (key {key})" if key is not None else "")


def describe_children(children: Mapping[str, str | None]) -> Iterator[str]:
    if len(children) > 1:
        yield f"{len(children)} child runs"
        return
    for run_id, waiting_for in children.items():
        yield f"child run {run_id}" + (f" ({waiting_for})" if waiting_for else "")


def join_subjects(subjects: list[str]) -> str:
    *first, last = subjects
    return f"{', '.join(first)} and {last}" if first else last


def format_time(timestamp: float, now: datetime | None = None) -> str:
    """Return a local time, with its date if that is not today."""
    at, now = datetime.fromtimestamp(timestamp), now or datetime.now()
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"


def shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN_CHARS else f"{line[: MAX_SHOWN_CHARS - 1]}…"
