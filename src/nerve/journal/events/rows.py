"""Rows of journals: searched before they are decoded, and compared with the rows of their runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from nerve.core.events import JournalRow
from nerve.core.json_codec import encode_json
from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.errors import JournalBroken
from nerve.journal.events.event_types import decode_event
from nerve.journal.events.runs import RunStarted
from nerve.journal.paths import ROOT_PATH
from nerve.store.port import EventRow as StoredRow
from nerve.store.port import RunRow, Store


def may_contain(data: str, text: str) -> bool:
    """Whether the stored data of an event could have a text; cheaper than decoding it."""
    return encode_json(text, max_depth=None)[1:-1] in data


def data_length(row: JournalRow) -> int:
    """Return the number of characters of the data of an event."""
    return len(row.data)


def read_short_input(first_row: JournalRow, max_chars: int) -> Any:
    """Return the input in the first event of a run; None if the event is longer than `max_chars`."""
    start = decode_event(first_row) if len(first_row.data) <= max_chars else None
    return start.input if isinstance(start, RunStarted) else None


def contains_text(row: JournalRow, text: str) -> bool:
    """Return whether the type, the path or the data of an event contains a text in lower case."""
    return text in row.type or text in row.path.lower() or text in row.data.lower()


log = logging.getLogger("nerve")


def read_intact(store: Store, run_id: str) -> list[StoredRow]:
    """Return the events of a run, or none if its journal is damaged, so that sums over runs still work."""
    try:
        return store.events(run_id)
    except JournalBroken as error:
        log.warning("skipped a damaged journal: %s", error)
        return []


def compare_run_row(row: RunRow, first: StoredRow, last: StoredRow) -> Iterator[str]:
    """Yield the differences between the row of a run and the first and last event of its journal."""
    start, names = decode_event(first), ("session", "key", "parent", "conversation", "label")
    journal_values = {"run": getattr(start, "run_id", None), "workflow": getattr(start, "workflow_id", None)}
    journal_values |= {name: getattr(start, name, None) for name in names}
    ended = last.type.removeprefix("workflow_") if last.settles == ROOT_PATH else None
    if ended is not None or row.state in FINAL_STATE_VALUES:
        journal_values["state"] = ended or "open"
    for name, value in journal_values.items():
        if (row_value := getattr(row, name)) != value:
            yield f"its row in the runs table has {name} {row_value!r}, but its journal has {value!r}"
