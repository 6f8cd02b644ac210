"""Records: one canonical form, as JSON and as text."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given

from dataspace.given import records, values
from nerve.dataspace import NotARecord, Record
from nerve.dataspace.builtin_records import signal
from nerve.errors import NotJson
from nerve.text.source import InvalidDefinition


@given(records)
def test_a_record_is_read_back_from_its_json(record: Record) -> None:
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert Record.from_json(json.loads(record.canonical)).canonical == record.canonical


@given(records)
def test_a_record_is_read_back_from_its_text(record: Record) -> None:
    again = Record.parse(str(record))
    assert again == record
    assert str(again) == str(record) or again.canonical == record.canonical


@given(records)
def test_copies_of_a_record_are_equal(record: Record) -> None:
    for again in (
        copy.deepcopy(record),
        copy.copy(record),
        Record.of(record),
    ):
        assert again == record
        assert hash(again) == hash(record)
        assert again.id == record.id


@given(records, records)
def test_records_are_equal_when_their_json_is(one: Record, other: Record) -> None:
    same = json.dumps(one.to_json(), sort_keys=True) == json.dumps(other.to_json(), sort_keys=True)
    assert (one == other) is same


@given(values)
def test_a_last_positional_object_is_not_parsed_as_named_fields(value: Any) -> None:
    record = Record("note", ({"a": value},))
    assert record.to_json()[-1] == {}
    assert Record.from_json(record.to_json()).named == {}
    assert Record("note", (), {"a": value}) != record


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('(agent-response :request-id "r" :text "t")', ["agent-response", {"request-id": "r", "text": "t"}]),
        ("(note)", ["note"]),
        ("(note {})", ["note"]),
        ("(note {} {})", ["note", {}, {}]),
        ("(note 1 -2.5 true nil [a (b :c 1)])", ["note", 1, -2.5, True, None, ["a", ["b", {"c": 1}]]]),
        ('("a label" {"a b" 1})', ["a label", {"a b": 1}]),
        (
            '(workflow-instance :definition planner :label "feature-42" :branch main :context {:n 1})',
            [
                "workflow-instance",
                {"definition": "planner", "label": "feature-42", "branch": "main", "context": {"n": 1}},
            ],
        ),
    ],
)
@pytest.mark.requirement("S4-10")
def test_text_and_json_are_the_same_record(text: str, expected: list[Any]) -> None:
    record = Record.of(text)
    assert record.to_json() == expected
    assert record == Record.of(expected)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (signal("plan/ready", "feature-42", 1), '(signal plan/ready :key "feature-42" :value 1)'),
        (Record("note", ("two words", "true")), '(note "two words" "true")'),
        (Record("note", ({"a": [1]},)), "(note {:a [1]} {})"),
        (Record("_", ("?x",)), '("_" "?x")'),
    ],
)
def test_a_record_is_printed_in_its_text_syntax(record: Record, text: str) -> None:
    assert str(record) == text


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("note", 1, 1, "Not a record"),
        ("()", 1, 1, "Not a record"),
        ("[note]", 1, 1, "Not a record"),
        ("(1 2)", 1, 2, "label must be a name"),
        ("(note :a)", 1, 7, "':a' has no value"),
        ("(note :a :b 1)", 1, 7, "':a' has no value"),
        ("(note :a 1\n  2)", 2, 3, "Positional fields must come before named fields"),
        ("(note :a 1 :a 2)", 1, 12, "Duplicate field ':a'"),
        ("(note ?x)", 1, 7, "only allowed in a pattern"),
        ("(note [_])", 1, 8, "only allowed in a pattern"),
        ("(note (:a 1))", 1, 7, "Expected a value"),
        ("(note ())", 1, 7, "Expected a value"),
        ("(note", 1, 1, "never closed"),
        ('("")', 1, 1, "label"),
    ],
)
def test_invalid_record_text_is_rejected_with_its_position(
    text: str, line: int, column: int, says: str
) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        Record.parse(text)
    problem = caught.value.problems[0]
    assert (problem.position.line, problem.position.column) == (line, column)
    assert says in problem.message


@pytest.mark.parametrize("value", [[], {}, None, [1], [None], [""], 7])
def test_json_that_is_not_a_record_is_rejected(value: Any) -> None:
    with pytest.raises(NotARecord, match="list with a label first"):
        Record.from_json(value)


def test_equal_numbers_are_one_value_and_booleans_are_not_numbers() -> None:
    assert Record("n", (1.0,)) == Record("n", (1,))
    assert Record("n", (-0.0,)) == Record("n", (0,))
    assert Record("n", (True,)) != Record("n", (1,))
    assert Record("n", ("1",)) != Record("n", (1,))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53 + 1, object(), {1: 2}, b"x", {1, 2}])
def test_values_without_a_json_form_are_rejected(value: Any) -> None:
    with pytest.raises(NotJson):
        Record("n", (value,))


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    def nested(depth: int) -> list[Any]:
        return [nested(depth - 1)] if depth else []

    deep = Record("n", (nested(62),))
    assert Record.parse(str(deep)) == deep
    with pytest.raises(NotJson, match="deep"):
        Record("n", (nested(63),))


def test_an_unpaired_surrogate_is_replaced() -> None:
    assert Record("n", ("a\ud800b",)).fields == ("a\ufffdb",)


def test_changing_the_source_does_not_change_the_record() -> None:
    given: dict[str, Any] = {"a": [1]}
    record = Record("n", (given,), given)
    given["a"].append(2)
    assert record == Record("n", ({"a": [1]},), {"a": [1]})
    with pytest.raises(TypeError):
        record.named["a"] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("(signal go :key a :value 1)", "(signal go :key a :value 2)", True),
        ("(signal go :key a)", "(signal go :key b)", False),
        ("(signal go :key a)", "(signal stop :key a)", False),
        ("(signal go)", "(signal go :key nil :value 3)", True),
        ("(workflow/state :run r :step a)", "(workflow/state :run r :step b)", True),
        ("(workflow/state :run r)", "(workflow/state :run s)", False),
        ("(workflow/log :run r :seq 1)", "(workflow/log :run r :seq 2)", False),
        ("(workflow/log :run r :seq 1)", "(workflow/log :run r :seq 1 :message m)", True),
        ("(agent-request :run r :request-id 1)", "(agent-request :run r :request-id 1 :agent a)", True),
        ("(agent-request :run r :request-id 1)", "(agent-response :run r :request-id 1)", False),
        ("(agent-response :run r :request-id 1)", "(agent-response :run s :request-id 1)", False),
        (
            "(workflow-instance :definition d :label l)",
            "(workflow-instance :definition d :label l :context {})",
            True,
        ),
        ("(workflow-instance :definition d :context {:a 1})", "(workflow-instance :definition d)", False),
        ("(workflow-definition :id a :hash 1)", "(workflow-definition :id a :hash 2)", True),
        ("(note :id a :text b)", "(note :id a :text c)", False),
    ],
)
def test_a_builtin_record_is_identified_by_its_identity_fields(one: str, other: str, same: bool) -> None:
    assert (Record.of(one).id == Record.of(other).id) is same


@pytest.mark.requirement("S4-10")
def test_aliases_are_the_same_record() -> None:
    assert Record.of("(signal go :scope a)") == Record.of("(signal go :key a :value nil)")
    assert Record.of("(workflow/definition :id a)") == Record.of("(workflow-definition :id a)")
