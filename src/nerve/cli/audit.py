"""`nerve audit`: everything that was decided, verified against the hash chains of the store."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter
from nerve.cli.runs import SHORT_ID_CHARS
from nerve.text import clip_text
from nerve.ui.formatting import count_noun, format_caller, format_table
from nerve.ui.sanitize import dump_safe_json

if TYPE_CHECKING:
    from nerve.api.models import AuditEntry, AuditPage

HEADINGS = ("time", "who", "way", "action", "run", "")
MAX_WHAT_CHARS = 80


def audit_command(
    *,
    since: Annotated[
        str | None, Parameter(help="Only decisions since then: a period such as 2h or 7d, or a date.")
    ] = None,
    until: Annotated[
        str | None, Parameter(help="Only decisions until then: a period such as 2h or 7d, or a date.")
    ] = None,
    run: Annotated[str | None, Parameter(help="Only decisions about this run.")] = None,
    person: Annotated[str | None, Parameter(help="Only decisions of this person, or about them.")] = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List everything that was decided, oldest first, and verify it.

    Starts, forks, votes and answers with the hash of what was shown, stops, budget raises, deletions and
    changes of people and tokens: each with who it was, by which way and from where. The hash chains of all
    journals that are read, and that of the people, are verified first; if one is broken, nothing is listed,
    the error names the run and the event.

    `--json` prints one object for each decision, and at the end one with what was verified.
    """
    options = {"since": since, "until": until, "run": run, "person": person}

    async def do(context: CliContext) -> int:
        filters = {name: value for name, value in options.items() if value is not None}
        page = await context.client.all_audit_entries(**filters)
        if common.json:
            print_lines(context, page)
            return COMPLETED
        rows = [format_entry(entry) for entry in page.entries]
        context.print_result({}, format_table([HEADINGS, *rows]) if rows else "No decisions.")
        context.info(
            f"Verified: {count_noun(page.runs, 'run')} with {count_noun(page.events, 'event')}, "
            f"{count_noun(page.changes, 'change')} of people."
        )
        return COMPLETED

    return run_with_api(common, do, read_only=True)


def print_lines(context: CliContext, page: AuditPage) -> None:
    """Print one JSON object for each decision, and at the end what was verified."""
    for entry in page.entries:
        fields = entry.model_dump(mode="json", exclude_none=True)
        print(dump_safe_json(fields), file=context.out)
    verified = page.model_dump(mode="json", include={"runs", "events", "changes", "last_change"})
    print(dump_safe_json({"verified": verified}), file=context.out)


def format_entry(entry: AuditEntry) -> tuple[str, ...]:
    at: datetime = entry.at.astimezone()
    place = entry.address or (f"process {entry.pid}" if entry.pid is not None else "")
    way = f"{entry.via or ''}{f' from {place}' if place else ''}"
    who = entry.person or (format_caller(entry.by) if entry.by else "")
    run = "" if entry.run is None else entry.run[:SHORT_ID_CHARS]
    return (f"{at:%Y-%m-%d %H:%M:%S}", who, way, entry.action, run, describe_entry(entry))


def describe_entry(entry: AuditEntry) -> str:
    """Return what was decided about, in one line."""
    parts = []
    if entry.answer is not None:
        parts.append(json.dumps(entry.answer, ensure_ascii=False))
    if entry.gate is not None:
        parts.append(f"gate {entry.gate}")
    if entry.hash is not None:
        parts.append(f"shown {entry.hash[:8]}")
    for name, value in entry.details.items():
        if name == "runs":
            parts.append(", ".join(run[:SHORT_ID_CHARS] for run in value))
        elif name not in ("definition", "names"):
            parts.append(f"{name} {value if isinstance(value, str) else json.dumps(value)}")
    if entry.reason:
        parts.append(f"because {entry.reason}")
    return clip_text(" ".join(", ".join(parts).split()), MAX_WHAT_CHARS)
