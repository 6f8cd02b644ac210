"""Fork points: where a fork departs from its source, and which events it copies."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from nerve.core.events import RUN_LEVEL_EVENTS, JournalRow
from nerve.core.suggest import did_you_mean_hint
from nerve.journal.events import WAIT_EVENTS
from nerve.journal.failures import abandoned_paths
from nerve.journal.replay import (
    ABANDON_EVENTS,
    CONTROL_PREFIX,
    NON_BODY_EVENTS,
    OPENING_EVENTS,
    ROOT_PATH,
    ancestor_paths,
    answer_positions,
    drop_reset_rows,
    drop_rows_at,
    is_below_leaf,
    is_child_start,
)
from nerve.store.port import EventRow


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork departs from its source."""

    paths: Sequence[str] = ()
    """The paths that run again."""
    since_seq: float = inf
    """The event after which nothing is certain: people and the clock are asked again."""
    outdated_paths: Sequence[str] = ()
    """Gates whose answers do not count, because an answer applies only to what was shown."""
    retried_calls: Container[str] = ()
    """Failed or abandoned calls of child runs, which are retried like their parent."""

    @classmethod
    def at_paths(
        cls,
        paths: Sequence[str],
        journal_rows: Iterable[JournalRow],
        has_asked_person: Callable[[str], bool],
        is_input_changed: bool = False,
    ) -> ForkPoint:
        """Fork at paths: events before the first of them count; with a changed input, no answer does."""
        rows = body_rows(journal_rows)
        asks = {row.path: row.seq for row in rows if row.type in OPENING_EVENTS}
        for path in paths:
            if path not in asks:
                known = sorted(asks)
                hint = did_you_mean_hint(path, known) or f". Known paths: {', '.join(known) or 'none yet'}"
                raise ValueError(f"Unknown path '{path}'{hint}")
        since = min((asks[path] for path in paths), default=inf)
        late = [
            gate_path
            for seq, gate_path in answer_positions(rows, has_asked_person)
            if seq > (0 if is_input_changed else since)
        ]
        return cls(paths, since, late)

    @classmethod
    def at_failures(
        cls,
        journal_rows: Iterable[JournalRow],
        failed: Mapping[str, JournalRow],
        has_asked_person: Callable[[str], bool],
        is_input_changed: bool = False,
    ) -> ForkPoint:
        """Fork at failures: events and questions before the first failure count."""
        rows = body_rows(journal_rows)
        asks = {row.path: row.seq for row in rows if row.type in OPENING_EVENTS}
        since = min((row.seq for row in failed.values()), default=inf)
        late = [
            gate_path
            for _, gate_path in answer_positions(rows, has_asked_person)
            # A gate opened before the failure showed what is still true, even if its answer came later.
            if is_input_changed or asks[gate_path] > since
        ]
        children = {row.path for row in rows if is_child_start(row)} & (failed.keys() | abandoned_paths(rows))
        return cls([path for path in failed if path not in children], since, late, children)


def body_rows(rows: Iterable[JournalRow]) -> list[JournalRow]:
    """Return the events of a body without those that were reset."""
    return [row for row in drop_reset_rows(list(rows)) if row.type not in RUN_LEVEL_EVENTS]


def without_outcomes(rows: list[JournalRow], calls: Container[str]) -> list[JournalRow]:
    """Return the rows without the outcomes of calls and their enclosing steps; the calls themselves stay."""
    paths = [row.path for row in rows if is_child_start(row) and row.path in calls]
    around = {above for path in paths for above in (*ancestor_paths(path), path)}
    return [row for row in rows if not (row.path in around and (row.settles or row.type in ABANDON_EVENTS))]


def copied_rows(rows: Iterable[JournalRow], cut: ForkPoint) -> list[EventRow]:
    """Return the rows that a fork copies, numbered from 2.

    Not copied: events at or below the fork paths, outcomes of enclosing steps, unsettled requests, timers and
    signals opened after the certain part, and outdated answers with the outcomes of steps around their gates.
    The last attempt of a child run that is open, retried or asked again becomes the first attempt in the
    fork.
    """
    remaining = body_rows(rows)
    late = {row.path for row in remaining if row.type in WAIT_EVENTS and row.seq > cut.since_seq}
    calls = {row.path for row in remaining if is_child_start(row)}
    reopened_calls = {path for path in calls if path in cut.retried_calls or path in cut.outdated_paths}
    remaining = drop_rows_at(
        remaining, [*cut.paths, *(gate_path for gate_path in cut.outdated_paths if gate_path not in calls)]
    )
    remaining = without_outcomes(remaining, reopened_calls)
    ended = {
        row.path
        for row in remaining
        if row.settles and row.type not in ABANDON_EVENTS and row.settles != ROOT_PATH
    }
    abandoned = {row.path for row in remaining if row.type in ABANDON_EVENTS}
    open_calls = {row.path for row in remaining if is_child_start(row) and row.path not in ended}

    def takes_over(row: JournalRow) -> bool:
        if (
            row.type in ABANDON_EVENTS
            or row.type in NON_BODY_EVENTS
            or row.path in late
            or is_below_leaf(row.path, open_calls)
        ):
            return False
        # Control nodes are copied even if open: they have no effect of their own, and replay walks through
        # them.
        if row.type not in OPENING_EVENTS or row.path in ended or row.data.startswith(CONTROL_PREFIX):
            return True
        return is_child_start(row) and row.path not in abandoned

    copied = [row for row in remaining if takes_over(row)]
    return [
        # The settle key is the plain path: in the fork nothing has been reset yet.
        EventRow(number, row.at, row.type, row.path, row.path if row.settles else None, row.data)
        for number, row in enumerate(copied, 2)
    ]
