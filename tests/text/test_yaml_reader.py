"""Safe YAML: plain data with places, and a reason with a place for everything else."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nerve.text import yaml_reader
from nerve.text.source import InvalidDefinition, LocatedList, LocatedMap, Position, Problem
from nerve.text.yaml_reader import MAX_DEPTH, load_yaml
from notations.quick import within


def refused(text: str) -> list[Problem]:
    with pytest.raises(InvalidDefinition) as raised:
        load_yaml(text, "x.yaml")
    return raised.value.problems


def refused_at(text: str, line: int, column: int) -> str:
    problem = refused(text)[0]
    assert (problem.position.line, problem.position.column) == (line, column), problem
    return problem.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-0x1F", "-0x1F"),
        ("0x1F", 31),
        ("0o17", 15),
        ("007", 7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("9007199254740992", 2**53),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("=", "="),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    found = load_yaml(f"x: {text}")["x"]
    assert (found, type(found)) == (value, type(value))


def test_keys_are_texts_as_they_are_written() -> None:
    assert load_yaml("on: 1\n1: 2\ntrue: 3\n'<<': 4\nnull: 5\n") == {
        "on": 1,
        "1": 2,
        "true": 3,
        "<<": 4,
        "null": 5,
    }


def test_every_value_records_its_position() -> None:
    found = load_yaml("a: 1\nb:\n  - x\n  - c: 'y'\n    d: |\n      text\n")
    assert isinstance(found, LocatedMap)
    assert found.key_positions == {"a": Position(1, 1), "b": Position(2, 1)}
    assert found.value_positions["a"] == Position(1, 4)
    items = found["b"]
    assert isinstance(items, LocatedList)
    assert items.position == Position(3, 3)
    assert items.value_positions == {0: Position(3, 5), 1: Position(4, 5)}
    assert items[1].value_positions == {"c": Position(4, 9), "d": Position(6, 7)}


def test_places_count_characters_and_real_lines() -> None:
    found = load_yaml("é: '\u2028ü'\nß: [ä, ö]\n")
    assert found["ß"].value_positions == {0: Position(2, 5), 1: Position(2, 8)}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: &x 1\n", 1, 4, "anchor &x"),
        ("a: 1\nb: *x\n", 2, 4, "alias *x"),
        ("a:\n  <<: {b: 1}\n", 2, 3, "merge key"),
        ("a: !!python/object/apply:os.system ['id']\n", 1, 4, "tag"),
        ("a: !!str 1\n", 1, 4, "tag"),
        ("a: ! 1\n", 1, 4, "tag"),
        ("a: 1\nb: 2\na: 3\n", 3, 1, "'a' is duplicated (first on line 1)"),
        ("a: 1\n---\nb: 1\n", 2, 1, "second document"),
        ("a: 1\n...\n# x\nb: 1\n", 4, 1, "second document"),
        ("%YAML 1.2\n---\na: 1\n", 1, 1, "directive"),
        ("# x\n%TAG ! x\n---\na: 1\n", 2, 1, "directive"),
        ("a: 1e999\n", 1, 4, "cannot be represented exactly"),
        ("a: .nan\n", 1, 4, "cannot be represented exactly"),
        ("a: 9007199254740993\n", 1, 4, "cannot be represented exactly"),
        ("a: " + "9" * 5000 + "\n", 1, 4, "cannot be represented exactly"),
        ("a: {{ x }}\n", 1, 5, "A key must be a string"),
        ("? [a, b]\n: 1\n", 1, 3, "A key must be a string"),
        (": 1\n", 1, 1, "not YAML"),
        ("?\n: 1\n", 1, 2, "A key is missing"),
        ("a: 'x\n", 1, 4, "unclosed quote"),
        ("a: b: c\n", 1, 5, "not YAML"),
        ("a:\n\t- b\n", 2, 1, "not YAML"),
        ("a: [1, 2\n", 1, 4, "unclosed bracket"),
        ("a: x\0y\n", 1, 5, "U+0000"),
        ("a: 1\nb: \x1b[31m\n", 2, 4, "U+001B"),
        ("a: \ud800\n", 1, 4, "U+D800"),
        ("\ufeffa: 1\n", 1, 1, "byte order mark"),
        ("a: \ufeff\n", 1, 4, "U+FEFF"),
        ("a: 1\n".encode("utf-16-le").decode("latin-1"), 1, 2, "UTF-16"),
    ],
)
def test_what_is_more_than_plain_data_is_refused_with_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    assert words in refused_at(text, line, column)


@pytest.mark.parametrize(
    "text", ["name: [\n", "a: x\n\t- b\n", ": 1\n", "a: 'x\n", "- a\nb: 1\n", "a: |x\n", "]"]
)
def test_every_error_of_syntax_has_a_fix(text: str) -> None:
    assert all(problem.fix for problem in refused(text))


def test_every_problem_of_a_file_is_reported_at_once() -> None:
    problems = refused("a: &x 1\nb: *x\nc: .inf\na: 2\n")
    assert [problem.position.line for problem in problems] == [1, 2, 3, 4]
    assert all(problem.fix and problem.file == "x.yaml" for problem in problems)


def test_a_file_of_nothing_but_problems_is_not_read_to_its_end() -> None:
    assert len(refused("- &a 1\n" * 1000)) == yaml_reader.MAX_PROBLEMS


def test_the_greatest_depth_can_be_read_and_one_more_not() -> None:
    assert load_yaml("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)
    assert "deeper than 64" in refused("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))[0].message


def bomb() -> str:
    lines = ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for one, two in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{two}: &{two} [{', '.join([f'*{one}'] * 9)}]")
    return "\n".join(lines)


BOMBS: dict[str, Callable[[], str]] = {
    "aliases": bomb,
    "recursive alias": lambda: "a: &a [*a]\n",
    "merges": lambda: "x: &x {a: 1}\n" + "".join(f"k{n}:\n  <<: *x\n" for n in range(2000)),
    "merges of merges": lambda: "".join(
        f"k{n}: &k{n}\n  <<: [*k{n - 1}, *k{n - 1}]\n" for n in range(1, 2000)
    ),
    "flow depth": lambda: "[" * 10_000,
    "flow map depth": lambda: "{a: " * 10_000,
    "block depth": lambda: "- " * 10_000,
    "question depth": lambda: "? " * 10_000,
    "indented depth": lambda: "".join(" " * n + "a:\n" for n in range(500)),
    "million keys": lambda: "".join(f"k{n}: 1\n" for n in range(1_000_000)),
    "many values": lambda: "[" + "1," * 120_000 + "1]",
    "long scalar": lambda: "a: " + "x" * 1_000_000,
    "python object": lambda: "!!python/object/apply:os.system ['touch canary']\n",
    "python name": lambda: "a: !!python/name:os.system ''\n",
    "null": lambda: "\0" * 10_000,
    "byte order mark": lambda: "\ufeffname: x\n",
    "utf-16": lambda: "name: x\n".encode("utf-16-be").decode("latin-1"),
    "utf-16 read as utf-8": lambda: "\ufffd\ufffdn\0a\0m\0e\0",
    "duplicates": lambda: "a: 1\n" * 20_000,
    "directives": lambda: "".join(f"%TAG !{n}! x\n" for n in range(15_000)) + "--- 1\n",
    "directives later": lambda: (
        "--- 1\n...\n" + "".join(f"%TAG !{n}! x\n" for n in range(15_000)) + "--- 1\n"
    ),
    "documents": lambda: "---\n" * 60_000,
    "long number": lambda: "a: " + "1" * 200_000,
    "long key": lambda: "a" * 200_000 + ": 1",
    "open quote": lambda: 'a: "' + "\\" * 100_001,
    "anchors": lambda: "".join(f"- &a{n} 1\n" for n in range(20_000)),
    "tags": lambda: "- !!omap 1\n" * 20_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once_with_a_reason(name: str) -> None:
    text = BOMBS[name]()
    assert within(0.1, lambda: refused(text))[0].message


def test_a_file_of_the_greatest_size_takes_less_than_a_second() -> None:
    text = "".join(f"- key{n}: {'some words that go on ' * 3}\n" for n in range(3200))
    assert 200_000 < len(text) < yaml_reader.MAX_YAML_BYTES
    assert len(within(1, lambda: load_yaml(text))) == 3200


@pytest.mark.parametrize("text", ["a: 1\nb: [x, {y: 'z'}]\n", "a: &x 1", "a: 'x", "a:\n\t- b", "{{ x }}"])
def test_the_parser_in_python_says_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> Any:
        try:
            return load_yaml(text)
        except InvalidDefinition as error:
            return [problem.position.line for problem in error.problems]

    first = outcome()
    monkeypatch.setattr(yaml_reader, "_Loader", yaml.BaseLoader)
    assert outcome() == first


@given(st.text(max_size=200))
def test_any_text_is_data_or_a_problem_inside_it(text: str) -> None:
    try:
        load_yaml(text)
    except InvalidDefinition as error:
        for problem in error.problems:
            lines = text.count("\n") + 1
            assert 1 <= problem.position.line <= lines
            assert problem.message
