"""The rows of the table of events: shorter than the events, and read back as they were.

A row holds one event, or two of frequent types that were appended together. These types are numbers, and the
data of a step is stored without the phrases that all steps share.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from nerve.store.port import EMPTIABLE_TYPE

StoredType: TypeAlias = str | int
StoredPath: TypeAlias = str | int | None
"""A settled path."""
StoredData: TypeAlias = str | bytes
StoredRow: TypeAlias = tuple[
    int, float, StoredType, str, StoredPath, StoredData, bytes, *tuple[Any, Any, Any, Any, Any]
]
"""Number of the last event, its time, type, path, settled path, data and hash; time, type, path, settled path
and data of the first of two events, which are None if the row has one event."""

TYPE_NAMES = (
    "node_started",
    "node_completed",
    "step_started",
    "step_completed",
    "workflow_started",
    "workflow_completed",
    "output_chunk",
    "gate_waiting",
    "gate_answered",
    "timer_started",
    "timer_fired",
)
"""The types that are stored as numbers, from 1: the content of the table `event_types`, fixed for ever."""
TYPE_CODES: dict[str, int] = {name: code for code, name in enumerate(TYPE_NAMES, 1)}
NAMES_BY_CODE: dict[StoredType, str] = dict(enumerate(TYPE_NAMES, 1))

JOINED_TYPES = frozenset(TYPE_NAMES) - {"workflow_started", EMPTIABLE_TYPE}
"""The types of events that can share a row: lists read only the start of a run, and output may be emptied."""
STORED_TYPES: dict[str, tuple[int, bool]] = {
    name: (code, name in JOINED_TYPES) for name, code in TYPE_CODES.items()
}
"""The numbers of types, and whether their events can share a row."""

OWN_PATH = 1
"""Stands for the path of the event as the path that it settles."""

STEP_END, STEP_START = "\x01", "\x02"
"""The first character of data that is stored without the phrases of a template; JSON has none of these."""
FIRST_SEPARATOR, SECOND_SEPARATOR = "\x03", "\x04"
TEMPLATES = {
    STEP_END: (
        '{"node_id":"',
        '","success":true,"duration_ms":',
        ',"result":{"success":true,"output":',
        ',"attributes":{}}}',
    ),
    STEP_START: ('{"node_id":"', '","hash":"', '","input":', "}"),
}
"""The phrases around the three values in the data of frequent events, as in the view `journal`: fixed for
ever."""
MARKS = tuple(TEMPLATES)
MARKS_BY_TYPE = {"node_completed": STEP_END, "node_started": STEP_START}
TEMPLATES_BY_TYPE = {
    type: (mark, *TEMPLATES[mark], len(TEMPLATES[mark][0]) + len(TEMPLATES[mark][-1]))
    for type, mark in MARKS_BY_TYPE.items()
}
"""The mark and the phrases for a type, and the length of the first and the last phrase together."""


def abbreviate_data(type: str, data: str) -> str:
    """Return data without the phrases of the template for its type, or unchanged if it does not fit.

    The last value is any JSON. The others have no quotes, so that data fits in one way, or not at all.
    """
    template = TEMPLATES_BY_TYPE.get(type)
    if template is None:
        return data
    mark, start, second_phrase, third_phrase, end, length_around = template
    values = data.removeprefix(start).removesuffix(end)
    if len(data) - len(values) != length_around:
        return data
    first, _, others = values.partition(second_phrase)
    second, found, last = others.partition(third_phrase)
    if not found or '"' in first or '"' in second:
        return data
    # In data that another program wrote, a value may have the separators.
    if FIRST_SEPARATOR in data or SECOND_SEPARATOR in data:
        return data
    return f"{mark}{first}{FIRST_SEPARATOR}{second}{SECOND_SEPARATOR}{last}"


def restore_data(data: str) -> str:
    """Return the data of a row as it was appended."""
    template = TEMPLATES.get(data[:1])
    if template is None:
        return data
    start, second, third, end = template
    # Each separator is there once; in a damaged row it is not, and the text has another hash.
    values = data[1:].replace(FIRST_SEPARATOR, second).replace(SECOND_SEPARATOR, third)
    return start + values + end


def type_name(stored: StoredType) -> str:
    """Return the type of an event from its stored form; ValueError for a number without a type."""
    name = NAMES_BY_CODE.get(stored, stored)
    if not isinstance(name, str):
        raise ValueError(f"No event type has the number {stored}")
    return name
