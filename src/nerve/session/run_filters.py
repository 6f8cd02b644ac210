"""Filters of lists of runs: their checks, and the query of the store."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import datetime, timedelta

from nerve.core.suggest import closest_name
from nerve.core.validation import describe_value
from nerve.core.workflow.state import OPEN_STATE_VALUES, WorkflowState
from nerve.lazy_dataclass import dataclass
from nerve.store.port import PATCH_KIND, TAG_KIND, RunRow, Store
from nerve.text import clip_names

STATE_NAMES = [state.value for state in WorkflowState]
MAX_SUGGESTED_NAMES = 10
"""Number of known names in the message about an unknown one."""
SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PERIOD = re.compile(r"(\d{1,9})([smhdw])")


class InvalidFilter(ValueError):
    """A filter has a value that it does not accept."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. {fix}")
        self.problem, self.fix = problem, fix


@dataclass(frozen=True, slots=True)
class RunFilters:
    """What the runs of a list have in common; a filter without a value accepts every run."""

    workflow: str | None = None
    states: Collection[str] | None = None
    label: str | None = None
    conversation: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    since: str | datetime | timedelta | None = None
    """The earliest start, or how long ago it is."""
    search: str | None = None
    patch: str | None = None
    """Only open runs that may need the old branch of this patch."""

    def find_newest(
        self, store: Store, session: str, before: RunRow | None, number: int, now: float
    ) -> list[RunRow]:
        """Return that many matching runs of a session, newest first; InvalidFilter for a wrong value."""
        since = None if self.since is None else parse_since(self.since, now)
        states = None if self.states is None else [parse_state(state) for state in self.states]
        if self.patch is not None:  # a run that has ended needs no branch
            states = [state for state in OPEN_STATE_VALUES if states is None or state in states]
        rows = store.runs(
            session=session,
            workflow=self.workflow,
            states=states,
            conversation=self.conversation,
            label=self.label,
            since=since,
            tags=self.tags,
            patch=self.patch,
            search=self.search,
            before=before,
            newest=number,
        )
        if not rows:
            self._check_names(store, session)
        return rows[::-1]

    def _check_names(self, store: Store, session: str) -> None:
        """Raise InvalidFilter for a tag or a patch that no run of the session has."""
        for kind, names in ((TAG_KIND, list(self.tags)), (PATCH_KIND, [self.patch] if self.patch else [])):
            known = store.tag_names(session, kind) if names else []
            for name in names:
                if name not in known:
                    raise InvalidFilter(f"Unknown {kind} '{name}'", suggest_name(kind, name, known))


def suggest_name(kind: str, name: str, known: list[str]) -> str:
    """Return a sentence with the most similar of the known names, or with all of them."""
    if close := closest_name(name, known):
        return f"Did you mean '{close}'?"
    return f"Known: {clip_names(known, MAX_SUGGESTED_NAMES)}." if known else f"No run has a {kind}."


def parse_state(name: str) -> str:
    """Return the name of a state; InvalidFilter with all names for another one."""
    if name not in STATE_NAMES:
        raise InvalidFilter(f"Unknown state '{name}'", f"Available: {', '.join(STATE_NAMES)}.")
    return name


def parse_since(since: str | datetime | timedelta, now: float) -> float:
    """Return the time of a date, a time, or a period before now such as `2d`."""
    if isinstance(since, timedelta):
        return now - since.total_seconds()
    if isinstance(since, datetime):
        return since.timestamp()
    if isinstance(since, str):
        if period := _PERIOD.fullmatch(since):
            return now - int(period[1]) * SECONDS_BY_UNIT[period[2]]
        try:
            return datetime.fromisoformat(since).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
    found = f"'{since}'" if isinstance(since, str) else describe_value(since)
    raise InvalidFilter(
        f"since must be a period or a date, got {found}",
        "Use a period such as 30s, 15m, 2h, 2d or 1w, or a date such as 2026-11-15 or 2026-11-15T12:30.",
    )
