"""The rows of the table of events: shorter than the events, and read back as they were.

A row holds one event, or two of frequent types that were appended together. These types are numbers, and the
data of a step is stored without the phrases that all steps share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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


def _compile_template(mark: str) -> tuple[str, Callable[[str], re.Match[str] | None]]:
    """Return the mark of a template, and what finds the values in data that fits.

    The last value is any JSON. The others have no quotes, so that data fits in one way, or not at all.
    """
    start, second, third, end = map(re.escape, TEMPLATES[mark])
    pattern = f'{start}([^"]*){second}([^"]*){third}(.*){end}'
    return mark, re.compile(pattern, re.DOTALL).fullmatch


TEMPLATES_BY_TYPE = {
    "node_completed": _compile_template(STEP_END),
    "node_started": _compile_template(STEP_START),
}


def abbreviate_data(type: str, data: str) -> str:
    """Return data without the phrases of the template for its type, or unchanged if it does not fit."""
    template = TEMPLATES_BY_TYPE.get(type)
    if template is None:
        return data
    mark, match_data = template
    values = match_data(data)
    # In data that another program wrote, a value may have the separators.
    if values is None or FIRST_SEPARATOR in data or SECOND_SEPARATOR in data:
        return data
    first, second, last = values.groups()
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
