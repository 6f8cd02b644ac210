"""Patterns: matching and captures."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataspace.given import holed, records, small_records, values
from nerve.dataspace import NotAPattern, Pattern, Record, exactly, match
from nerve.dataspace.matchers import literal
from nerve.text.source import InvalidDefinition

pairs = st.tuples(small_records, small_records) | st.tuples(records, records)


@given(pairs)
def test_an_exact_pattern_matches_only_its_record(pair: tuple[Record, Record]) -> None:
    one, other = pair
    assert exactly(one).match(one) == {}
    assert (exactly(one).match(other) is not None) is (one == other)
    assert Pattern.of(one) == exactly(one)


@given(records, records)
def test_an_exact_pattern_rejects_a_record_with_another_field(record: Record, other: Record) -> None:
    for near in (
        Record(record.label, record.fields, {**record.named, **other.named}),
        Record(record.label, (*record.fields, *other.fields), record.named),
        Record(record.label, record.fields[:-1], record.named),
    ):
        assert (exactly(record).match(near) is not None) is (near == record)


@given(values, values)
def test_a_literal_matches_only_its_value(value: Any, other: Any) -> None:
    pattern = ["n", literal(value), {}]
    assert match(pattern, Record("n", (value,))) == {}
    assert (match(pattern, Record("n", (other,))) is not None) is (
        Record("n", (other,)) == Record("n", (value,))
    )


def naive(pattern: Any, value: Any, captures: dict[str, Any]) -> bool:
    """A reference implementation of matching."""
    if isinstance(pattern, str):
        if pattern == "_":
            return True
        if pattern.startswith("?"):
            return same(captures.setdefault(pattern[1:], value), value)
        return same(pattern.removeprefix("\\") if pattern.startswith("\\") else pattern, value)
    if isinstance(pattern, dict) and isinstance(value, dict):
        return all(key in value and naive(part, value[key], captures) for key, part in pattern.items())
    return same(pattern, value)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(holed(), small_records)
def test_matching_agrees_with_a_reference_implementation(pattern: list[Any], record: Record) -> None:
    label, *fields, named = pattern
    expected: dict[str, Any] = {}
    more = fields[-1:] == ["..."]
    fields = fields[:-1] if more else fields
    fits = naive(label, record.label, expected) and (
        len(fields) <= len(record.fields) if more else len(fields) == len(record.fields)
    )
    fits = fits and all(
        naive(part, value, expected) for part, value in zip(fields, record.fields, strict=False)
    )
    fits = fits and naive(named, dict(record.named), expected)
    assert match(pattern, record) == (expected if fits else None)


@given(holed(), small_records)
def test_a_matching_record_has_the_index_key_of_the_pattern(pattern: list[Any], record: Record) -> None:
    if match(pattern, record) is not None:
        assert set(Pattern.of(pattern).index_keys()) <= set(record.index_keys)


@given(holed() | holed(records))
def test_a_pattern_is_read_back_from_its_json_and_its_text(pattern: list[Any]) -> None:
    made = Pattern.of(pattern)
    assert Pattern.of(json.loads(json.dumps(made.to_json()))) == made
    assert Pattern.of(str(made)) == made
    assert hash(Pattern.of(str(made))) == hash(made)


@given(records)
def test_an_exact_pattern_survives_its_text(record: Record) -> None:
    assert Pattern.of(str(exactly(record))) == exactly(record)


RESPONSE = Record("agent-response", (), {"request-id": "r", "text": "t", "usage": {"in": 1, "out": 2}})


@pytest.mark.parametrize(
    ("pattern", "captures"),
    [
        ('(agent-response :request-id "r")', {}),
        ("(agent-response :request-id r :text ?answer)", {"answer": "t"}),
        ("(agent-response :text ?a :request-id ?b)", {"a": "t", "b": "r"}),
        ("(agent-response :text ?a :request-id ?a)", None),
        ("(agent-response :error _)", None),
        ("(agent-response :usage {:in ?in})", {"in": 1}),
        ("(agent-response :usage {:in ?in :... false})", None),
        ("(agent-response :usage {})", {}),
        ("(agent-response :usage ?u)", {"u": {"in": 1, "out": 2}}),
        ("(agent-response :request-id r :... false)", None),
        ("(agent-response _)", None),
        ("(agent-response ...)", {}),
        ("(?label ...)", {"label": "agent-response"}),
        ("(_)", {}),
        ("agent-response", {}),
        ("agent-request", None),
        ('(agent-response :text "?answer")', None),
    ],
)
@pytest.mark.requirement("S4-14")
def test_a_pattern_finds_and_captures(pattern: str, captures: dict[str, Any] | None) -> None:
    assert match(pattern, RESPONSE) == captures


@pytest.mark.parametrize(
    ("pattern", "fields", "captures"),
    [
        (["n"], [], {}),
        (["n"], [1], None),
        (["n", "..."], [1, 2], {}),
        (["n", "?a", "..."], [1, 2], {"a": 1}),
        (["n", "?a", "..."], [], None),
        (["n", ["?a", "..."]], [[1, 2]], {"a": 1}),
        (["n", ["?a"]], [[1, 2]], None),
        (["n", 1], [True], None),
        (["n", 1.0], [1], {}),
        (["n", "\\?a"], ["?a"], {}),
        (["n", "\\?a"], ["\\?a"], None),
        (["n", "\\\\"], ["\\"], {}),
        (["n", "\\_"], ["_"], {}),
        (["n", "\\..."], ["..."], {}),
        (["n", None], [None], {}),
    ],
)
def test_a_pattern_must_cover_all_positional_fields(
    pattern: list[Any], fields: list[Any], captures: dict[str, Any] | None
) -> None:
    assert match(pattern, Record("n", tuple(fields))) == captures


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ([], "is not a pattern"),
        ([1], "label"),
        (["..."], "label"),
        (["\\"], "label"),
        (["n", "...", 1], "last"),
        (["n", ["...", 1]], "last"),
        (["n", {"a": "..."}], "last"),
        (["n", "?"], "is not a valid capture"),
        (["n", "?a b"], "is not a valid capture"),
        (["n", "?9"], "is not a valid capture"),
        (["n", {"...": 1}], "true or false"),
        (["n", {"a": 1, "\\a": 2}], "Duplicate key, once with a backslash"),
    ],
)
def test_an_invalid_pattern_is_rejected(pattern: list[Any], says: str) -> None:
    with pytest.raises(NotAPattern, match=says):
        Pattern.of(pattern)


@pytest.mark.parametrize("text", ["1", "(n ?)", "(n ... 1)", "(n :a)", "", "(n) (n)", "((n))"])
def test_invalid_pattern_text_is_rejected_with_its_position(text: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"^<pattern>:1:\d+: "):
        Pattern.of(text)


def test_changing_captures_does_not_change_the_record() -> None:
    record = Record("n", ([1],))
    captures = match("(n ?a)", record)
    assert captures is not None
    captures["a"].append(2)
    assert match("(n ?a)", record) == {"a": [1]}


def test_the_spelling_of_a_signals_scope_does_not_matter() -> None:
    signal = Record.of("(signal go :key a)")
    for key, pattern in itertools.product(("key", "scope"), ("(signal go :{} a)", "(signal ?l :{} a)")):
        assert match(pattern.format(key), signal) is not None


@pytest.mark.parametrize("given", [5, None, {"label": 1}, object()])
def test_the_error_for_an_invalid_pattern_shows_the_syntax(given: object) -> None:
    with pytest.raises(NotAPattern, match=r"is not a pattern\. A pattern is a list with a label first"):
        Pattern.of(given)  # type: ignore[arg-type]
