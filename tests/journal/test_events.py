"""Event classes: every type has one, stored journals decode into them, and what they encode they decode."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import encode_json
from nerve.errors import NotJson
from nerve.journal import events
from nerve.journal.events import EVENT_CLASSES, CallEvent, EmittedEvent, KnownEvent, decode_event
from nerve.journal.events.known_event import field_specs
from nerve.store.port import EventRow

JOURNALS = sorted((Path(__file__).parent.parent / "journals").glob("*/*.json"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, width=32)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: is_encodable(value))
names = st.text(st.characters(codec="utf-8"), max_size=8)


def is_encodable(value: Any) -> bool:
    try:
        return bool(encode_json(value))
    except NotJson:
        return False


def row_of(type: str, data: str) -> EventRow:
    return EventRow(1, 0.0, type, "/a", None, data)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values that a field with this annotation can have."""
    if isinstance(hint, UnionType):
        return st.one_of(*(values_of(part) for part in get_args(hint)))
    kind = get_origin(hint) or hint
    if kind is list:
        return st.lists(values_of(get_args(hint)[0]), max_size=3)
    if kind is dict:
        return st.dictionaries(names, values_of(get_args(hint)[1]), max_size=3)
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(0, 99)
    by_kind: dict[Any, st.SearchStrategy[Any]] = {
        str: names,
        int: st.integers(-(2**53), 2**53),
        float: numbers,
        bool: st.booleans(),
        type(None): st.none(),
        Any: json_values,
    }
    return by_kind[kind]


@st.composite
def known_events(draw: st.DrawFn) -> KnownEvent | CallEvent:
    """Draw an event of any type, with values its fields can have."""
    event_class = draw(st.sampled_from(sorted(EVENT_CLASSES.values(), key=lambda one: one.__name__)))
    hints = get_type_hints(event_class)
    values: dict[str, Any] = {}
    for name in hints:
        if name in CLASS_VARIABLES:
            continue
        if name == "extra":
            keys = names.filter(lambda key: key not in hints and key not in RENAMED_KEYS)
            values["extra"] = draw(st.dictionaries(keys, json_values, max_size=2))
        elif name in ("input_json", "result_json"):
            is_object = name == "result_json" and issubclass(event_class, events.CallSettled)
            shape = st.dictionaries(names, json_values, max_size=3) if is_object else json_values
            values[name] = encode_json(draw(shape))
        elif name == "hash":
            values[name] = draw(st.text("0123456789abcdef", max_size=8))
        elif name == "duration_ms":
            values[name] = draw(st.none() | st.integers(0, 10**9).map(lambda n: round(n / 1000, 3)))
        else:
            values[name] = draw(values_of(hints[name]))
    return event_class(**values)


CLASS_VARIABLES = ("type", "max_depth", "written_nulls", "has_foreign_text")
RENAMED_KEYS = ("control", "once", "input", "result", "duration_s")
"""Keys of JSON that are fields under another name."""


def without_impossible_values(event: KnownEvent | CallEvent) -> bool:
    """Whether the journal can have such an event."""
    match event:
        case events.SignalWaiting(patterns=dict()):
            return event.label is None and event.key is None
        case events.SignalReceived(label=None):
            return event.key is None
        case events.CallSettled():
            why = event.error, event.error_type, event.timeout, event.location, event.traceback
            return not event.success or set(why) == {None}
    return True


def test_a_number_that_equals_false_is_written() -> None:
    assert events.NodeRetrying().to_data() == {"node_id": "", "attempt": 1, "delay": 0.0}
    assert events.RunFailed("r").to_data()["duration_s"] == 0.0


def test_every_event_type_has_a_class() -> None:
    assert set(EVENT_CLASSES) == set(WorkflowEventType)


@given(known_events().filter(without_impossible_values))
def test_an_event_is_decoded_as_it_was_encoded(event: KnownEvent | CallEvent) -> None:
    decoded = decode_event(row_of(event.type, event.encode()))
    assert (type(decoded), decoded) == (type(event), event)


@given(known_events().filter(without_impossible_values))
def test_encoded_data_is_the_json_of_the_plain_data(event: KnownEvent | CallEvent) -> None:
    assert json.loads(event.encode()) == event.to_data()


@given(names.filter(lambda name: name not in EVENT_CLASSES), st.dictionaries(names, json_values, max_size=3))
def test_an_event_of_another_name_keeps_its_data(name: str, data: dict[str, Any]) -> None:
    event = decode_event(row_of(name, encode_json(data)))
    assert event == EmittedEvent(name, data)
    assert event.encode() == encode_json(data)


@given(st.sampled_from(sorted(EVENT_CLASSES)), st.dictionaries(names, json_values, max_size=4))
def test_any_data_of_a_known_name_can_be_decoded_and_loses_nothing(name: str, data: dict[str, Any]) -> None:
    """Users can emit events of some known names with any data."""
    encoded = decode_event(row_of(name, encode_json(data))).to_data()
    assert {key: encoded[key] for key in data if key not in RENAMED_KEYS} == {
        key: value for key, value in data.items() if key not in RENAMED_KEYS
    }


@pytest.mark.parametrize("file", JOURNALS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_stored_journal_is_encoded_to_the_same_text(file: Path) -> None:
    for journal in json.loads(file.read_text())["journals"].values():
        for row in map(EventRow._make, journal):
            assert decode_event(row).encode() == row.data


@pytest.mark.parametrize("event_class", sorted(EVENT_CLASSES.values(), key=lambda one: one.__name__))
def test_missing_keys_get_their_defaults(event_class: type[KnownEvent | CallEvent]) -> None:
    assert decode_event(row_of(event_class.type, "{}")) == event_class()


@pytest.mark.parametrize(
    "event_class", [each for each in EVENT_CLASSES.values() if issubclass(each, KnownEvent)]
)
def test_a_field_accepts_the_types_of_its_annotation(event_class: type[KnownEvent]) -> None:
    hints = get_type_hints(event_class)
    for name, spec in field_specs(event_class).items():
        hint = hints[name]
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        accepted = {get_origin(part) or part for part in parts}
        assert {*spec.accepted_types} == (accepted - {Any}) | ({int} if float in accepted else set())


def test_a_call_is_decoded_without_its_input() -> None:
    data = '{"control":true,"node_id":"a\\"b","step_id":"s","hash":"h","input":{"child":"x","once":true}}'
    event = decode_event(row_of("step_started", data))
    assert event == events.StepStarted('a"b', "h", '{"child":"x","once":true}', "s", is_control=True)
    assert event.encode() == data
    assert event.input == {"child": "x", "once": True}


def test_keys_in_another_order_are_read_as_well() -> None:
    event = decode_event(row_of("node_started", '{"input":1,"hash":"h","child":"c","node_id":"n"}'))
    assert event == events.NodeStarted("n", "h", "1", child="c")
    settled = decode_event(row_of("node_completed", '{"result":{"output":1},"success":true,"node_id":"n"}'))
    assert settled == events.NodeCompleted("n", True, '{"output":1}')


def test_a_null_where_a_value_is_optional_is_kept() -> None:
    assert decode_event(row_of("branch_taken", '{"node_id":"n","branch":null}')) == events.BranchTaken(
        "n", extra={"branch": None}
    )


def test_a_decision_on_a_call_that_took_time_is_read() -> None:
    event = events.NodeCompleted("n", True, '{"output":1}', 1.5, decided="skip")
    assert decode_event(row_of(event.type, event.encode())) == event
