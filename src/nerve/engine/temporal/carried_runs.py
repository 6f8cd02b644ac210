"""The journals of a family as a workflow begins with them: of its own runs, or of runs from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nerve.engine.child_runs import find_unsettled_children
from nerve.engine.run_summary import RunSummary
from nerve.engine.temporal.messages import HOST_ATTRIBUTE
from nerve.journal.events import CallSettled, decode_event, outcome_of
from nerve.journal.index import StoredJournal, read_start
from nerve.store.port import Append, Definition, EventRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.fork import RunCopy


MAX_CARRIED_EVENTS = 25_000
"""A workflow replays its journals in few tasks, and Temporal considers a task of some seconds as stuck."""


class JournalsTooLong(ValueError):
    """A family of runs has more events than a workflow can begin with."""


def carry_family(
    store: Store, run_id: str, read_rows: Callable[[str], list[EventRow]] | None = None
) -> list[Append]:
    """Return the journals of a run, the run before it in its chain, and the child runs that it waits for.

    With `read_rows`, these are the events of a run, and not those that the store has.
    """
    read_rows = read_rows or store.events
    parts: list[Append] = []
    previous = read_start(store, run_id).previous_run
    pending = [run_id] if previous is None else [previous, run_id]
    while pending:
        current = pending.pop(0)
        if (row := store.run(current)) is None:
            continue
        definition = store.definition(row.definition) if row.definition is not None else None
        rows = read_rows(current)
        parts.append(carry_run(row, rows, definition))
        if current != previous:
            pending += [child.run for child in find_unsettled_children(store, current, rows)]
    return parts


def count_events(journal: Sequence[Append]) -> int:
    return sum(len(part.rows) for part in journal)


def check_length(run_id: str, journal: Sequence[Append]) -> None:
    """Raise JournalsTooLong if a workflow cannot begin with the journals of a family."""
    if (count := count_events(journal)) > MAX_CARRIED_EVENTS:
        raise JournalsTooLong(
            f"Run '{run_id}' has {count:,} events with its child runs, and a workflow of Temporal can begin "
            f"with at most {MAX_CARRIED_EVENTS:,}. Use ctx.continue_as_new in runs as long as this one."
        )


def find_host(store: Store, row: RunRow) -> str | None:
    """Return the host with the files of a run: that of its last step in a workspace, or of its caller's."""
    current: RunRow | None = row
    while current is not None:
        for event in map(decode_event, reversed(store.events(current.run))):
            if isinstance(event, CallSettled) and (host := outcome_of(event).attributes.get(HOST_ATTRIBUTE)):
                return str(host)
        current = None if current.parent is None else store.run(current.parent)
    return None


def carry_run(row: RunRow, rows: Sequence[EventRow], definition: Definition | None) -> Append:
    """Return a journal as one part, with what a store keeps beside it."""
    summary = RunSummary(row.run, ())
    for recorded in StoredJournal(list(rows)).events:
        summary.add(*recorded)
    changes = summary.take_changes(row.session, row.workflow)
    new_row = row._replace(summary=summary.encode())
    return Append(row.run, 0, rows, new_row, definition, **changes._asdict())


def carry_copy(run_copy: RunCopy, row: RunRow, at: float, definition: Definition) -> Append:
    """Return the journal of a fork, whose copied events are written now."""
    start = EventRow(1, at, run_copy.start.type, "", None, run_copy.start.encode())
    copied = [
        EventRow(each.seq, at, each.type, each.path, each.settles, each.event.encode())
        for each in run_copy.events
    ]
    return carry_run(row, [start, *copied], definition)
