"""JSON with places."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.text.json_reader import MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_JSON_VALUES, parse_located_json
from nerve.text.source import InvalidDefinition, LocatedList, LocatedMap, Position
from notations.quick import within

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


def problems(given: str) -> list[str]:
    with pytest.raises(InvalidDefinition) as caught:
        parse_located_json(given, "f.json")
    return [str(problem) for problem in caught.value.problems]


@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_it_reads_what_json_writes(value: Any, indent: int | None, ascii: bool) -> None:
    assert parse_located_json(json.dumps(value, indent=indent, ensure_ascii=ascii)) == value


@settings(max_examples=500)
@given(st.text("[]{}\":,.0123456789-+eE \n\\untrfalse/'#é\ud800\0", max_size=30))
def test_it_reads_nothing_that_json_does_not(given: str) -> None:
    try:
        read = parse_located_json(given)
    except InvalidDefinition:
        return
    assert read == json.loads(given)


@given(values)
def test_every_value_and_key_has_its_position(value: Any) -> None:
    written = json.dumps(value, indent=1, ensure_ascii=False)
    lines = written.split("\n")

    def rest(place: Position | None) -> str:
        assert place is not None
        return lines[place.line - 1][place.column - 1 :]

    def look(read: Any) -> None:
        if isinstance(read, LocatedMap):
            assert rest(read.position).startswith("{")
            for key, inner in read.items():
                assert rest(read.key_positions[key]).startswith(json.dumps(key, ensure_ascii=False))
                assert rest(read.value_positions[key]).startswith(json.dumps(inner, ensure_ascii=False)[0])
                look(inner)
        elif isinstance(read, LocatedList):
            assert rest(read.position).startswith("[")
            for index, inner in enumerate(read):
                assert rest(read.value_positions[index]).startswith(json.dumps(inner, ensure_ascii=False)[0])
                look(inner)

    look(parse_located_json(written))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('{"a": 1,\n "a": 2}', "f.json:2:2: The key 'a' is duplicated; it is also on line 1. Keep one."),
        ('{"a": NaN}', "f.json:1:7: NaN is not a number in JSON. Use null."),
        ("[1, -Infinity]", "f.json:1:5: -Infinity is not a number in JSON. Use null."),
        ("[9007199254740993]", 'f.json:1:2: 9007199254740993 is beyond ±2^53. Write it as a string: "…".'),
        ("[1e999]", 'f.json:1:2: 1e999 is too large for a number. Write it as a string: "…".'),
        ("\ufeff{}", "f.json:1:1: The text starts with a byte order mark. Save it as UTF-8 without one."),
        ('{"a":\n"x\0"}', "f.json:2:3: A NUL character. Save the file as UTF-8 text."),
        ('["\\u0000"]', "f.json:1:2: A NUL character in a string. Remove it."),
        ('["\\ud800"]', "f.json:1:2: Unpaired surrogate. Write the complete character."),
        ('["\ud800"]', "f.json:1:3: Unpaired surrogate. Write the complete character."),
        ('{"a": 1,}', "f.json:1:8: A comma before '}'. Remove it."),
        ("[1 2]", "f.json:1:4: A comma is missing before this. Put a ',' after the previous item."),
        ("{a: 1}", 'f.json:1:2: The key a is not in double quotes. Write "a".'),
        ("{'a': 1}", "f.json:1:2: A string in single quotes. Use double quotes."),
        ('{"a" 1}', "f.json:1:6: Expected ':' after the key 'a'. Write \"key\": value."),
        ("// no\n{}", "f.json:1:1: JSON has no comments. Use a `description`."),
        (
            '["a\nb"]',
            "f.json:1:2: The string does not end on its line. Add a '\"', or write \\n inside it.",
        ),
        ('["\\x"]', "f.json:1:3: Invalid escape in a JSON string. Write a backslash as \\\\."),
        ('["a', "f.json:1:2: The string does not end. Add a '\"'."),
        ("[True]", "f.json:1:2: 'True' is not a JSON value. Write true."),
        ("[yes]", "f.json:1:2: 'yes' is not a JSON value. Put strings in double quotes."),
        ("[01]", "f.json:1:2: Invalid number. Write numbers like 12, -3.5 or 1e6."),
        (
            "{} {}",
            "f.json:1:4: Unexpected text after the end of the JSON value. Remove it.",
        ),
        ('{"a":\n', "f.json:2:1: The text ends here; expected a value. Close the open brackets."),
        ("", 'f.json:1:1: The file is empty. Start with \'{"id": …, "steps": […]}\'.'),
    ],
)
def test_a_problem_is_reported_with_position_and_fix(given: str, told: str) -> None:
    assert problems(given) == [told]


def test_several_problems_are_reported_at_once() -> None:
    assert len(problems('{"a": NaN, "b": 99999999999999999999,\n"a": "\\ud800"}')) == 4


BOMBS = {
    "deep lists": "[" * 10_000,
    "deep objects": '{"a":' * 10_000,
    "a level too deep": "[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1),
    "a million keys": "{" + ",".join(f'"k{n}":0' for n in range(1_000_000)) + "}",
    "a large list": "[" + "0," * (MAX_JSON_BYTES // 2 - 2) + "0]",
    "many lists": "[" + ",".join(["[[]]"] * (MAX_JSON_VALUES // 2)) + "]",
    "a large text": '"' + "x" * MAX_JSON_BYTES + '"',
    "backslashes": '"' + "\\" * (MAX_JSON_BYTES - 1),
    "quotes": '"' + '\\"' * (MAX_JSON_BYTES // 2 - 1),
    "a long number": "[" + "1" * 1_000_000 + "]",
    "a long fraction": "[0." + "1" * 1_000_000 + "]",
    "nothing": " " * 1_000_000,
    "one key again and again": "{" + ",".join('"a":0' for _ in range(90_000)) + "}",
    "UTF-16": '{"id":"x"}'.encode("utf-16").decode("latin-1"),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_at_once_with_a_reason(bomb: str) -> None:
    told = within(0.1, lambda: problems(bomb))
    assert told[0].startswith("f.json:1:")


def test_a_mebibyte_is_read_in_less_than_a_second() -> None:
    item = {"id": "step", "type": "agent", "agent": "planner", "next": "x" * 20, "timeout_ms": 1}
    written = json.dumps([item] * 9000, indent=1)[: MAX_JSON_BYTES - 10]
    written = written[: written.rindex("}", 0, written.rindex("}")) + 1] + "]"
    assert len(within(1, lambda: parse_located_json(written))) > 8000


def test_depth_64_is_read() -> None:
    assert parse_located_json("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH)
