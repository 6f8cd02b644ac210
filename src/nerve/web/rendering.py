"""Templates: the Jinja2 environment with its filters, and fragments for a page that is already open."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sized
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nerve.api.errors import ApiError
from nerve.text import clip_text, take_first_line
from nerve.ui.artifact_paths import find_artifact
from nerve.ui.display_values import display_value
from nerve.ui.formatting import (
    format_caller,
    format_cost,
    format_duration_between,
    format_file_size,
    format_queue_limits,
    format_token_count,
    format_two_units,
    format_value,
    short_id,
)
from nerve.ui.sanitize import markdown_first_line, sanitize_text
from nerve.ui.usage_charts import cost_of, tokens_of
from nerve.web.markdown import render_markdown

if TYPE_CHECKING:
    from jinja2 import Environment

FIELD_ERRORS = (400, 403, 404, 409, 422)
"""The status of errors that are shown beside a field."""
MAX_SHORT_CHARS = 120
MIN_PART_CHARS = 4000
MAX_SHOWN_ENTRIES = 500
"""The newest entries of a transcript that a page shows when it is loaded."""
KEY_PLACE = f"key-{secrets.token_hex(16)}".encode()
"""Stands for the key of a form in a message to several browsers, each of which gets a key of its own."""
RELATIVE_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


def make_environment() -> Environment:
    """Return the environment of all templates: values are escaped, and an unknown name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nerve.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "cost": format_cost,
        "tokens": format_token_count,
        "duration": format_run_duration,
        "ago": format_time_ago,
        "iso": format_iso_time,
        "exact": format_exact_time,
        "first_line": take_first_line,
        "question": markdown_first_line,
        "short_id": short_id,
        "caller": format_caller,
        "from_seconds": from_seconds,
        "seconds": format_two_units,
        "segment": quote_segment,
        "step_path": quote_step_path,
        "markdown": render_markdown,
        "diff_class": name_diff_class,
        "display": display_value,
        "short_json": format_short_json,
        "parts": split_text,
        "first_shown": first_shown_entry,
        "clock": format_clock_time,
        "known_cost": lambda usage: cost_of(usage) or 0,
        "known_tokens": lambda usage: tokens_of(usage) or 0,
        "file_size": format_file_size,
        "find_artifact": find_artifact,
    }
    environment.filters |= {"visible": sanitize_text, "queue_limits": format_queue_limits}
    return environment


def format_run_duration(run: Any) -> str:
    """Return how long a run took, or how long it has been open: `3m 05s`."""
    return format_duration_between(run.started_at, run.ended_at, datetime.now(UTC))


def format_time_ago(moment: datetime, now: datetime | None = None) -> str:
    """Return a time relative to now, in its largest unit: `now`, `5m ago`, `in 2h`."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for size, unit in RELATIVE_UNITS:
        if abs(seconds) >= size:
            count = f"{int(abs(seconds) // size)}{unit}"
            return f"{count} ago" if seconds > 0 else f"in {count}"
    return "now"


def format_iso_time(moment: datetime) -> str:
    """Return a time for the attribute `datetime`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_exact_time(moment: datetime) -> str:
    """Return a time for people: `2026-11-18 14:05:09 UTC`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def from_seconds(seconds: float) -> datetime:
    """Return the time of a number of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def quote_segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def quote_step_path(path: str) -> str:
    """Return the path of a step as the end of an address."""
    return quote(path, safe="/")


def format_clock_time(moment: datetime) -> str:
    """Return the time of day of an event: `14:05:09.123`."""
    return moment.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]


def format_short_json(value: Any) -> str:
    """Return a value on one line, for a summary."""
    return clip_text(format_value("" if value is None else value), MAX_SHORT_CHARS)


def split_text(text: str) -> list[str]:
    """Return a text in parts of complete lines, so that a page that adds to it lays out little of it again.

    The parts of the beginning of a text are those of the text, except the last one.
    """
    parts: list[str] = []
    start = 0
    while (end := text.find("\n", start + MIN_PART_CHARS) + 1) > 0:
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def first_shown_entry(entries: Sized) -> int:
    """Return the index of the first entry that a page shows when it is loaded."""
    return max(0, len(entries) - MAX_SHOWN_ENTRIES)


def name_diff_class(line: str) -> str:
    """Return the class of a line of a unified diff."""
    if line.startswith(("+++", "---", "diff ", "index ")):
        return "header"
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")


def describe_error(error: ApiError) -> str:
    """Return an error that the user can correct as one text beside its field; raise any other error."""
    if error.status not in FIELD_ERRORS:
        raise error
    return error.sentences


def make_partial(target: str, html: str, swap: str = "outerMorph") -> str:
    """Return a fragment with which an open page replaces the element that a selector names.

    `swap` is how: `outerMorph` replaces the element, `innerMorph` its content, `beforeend` appends to it.
    """
    return f'<hx-partial hx-target="{target}" hx-swap="{swap}">{html}</hx-partial>'


def encode_message(cursor: str, html: str = "") -> bytes:
    """Return a server-sent event with fragments; without any, the browser only notes the cursor."""
    data = "".join(f"data: {line}\n" for line in re.split(r"\r\n|\r|\n", html)) if html else ""
    return f"id: {cursor}\n{data}\n".encode()
