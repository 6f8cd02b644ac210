"""The reader of S-expressions: forms, places, comments, limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.text.sexpr import (
    Constant,
    Keyword,
    ListForm,
    MapForm,
    Number,
    String,
    Symbol,
    VectorForm,
    read_forms,
    read_single_form,
)
from nerve.text.source import InvalidDefinition, Position, Problem
from notations.quick import within


def refused(text: str) -> str:
    with pytest.raises(InvalidDefinition) as caught:
        read_forms(text, "f.lisp")
    return str(caught.value)


@pytest.mark.requirement("S4-02")
@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("planner", Symbol("planner")),
        ("plan/ready", Symbol("plan/ready")),
        ("@workflow-id", Symbol("@workflow-id")),
        ("?x", Symbol("?x")),
        ("...", Symbol("...")),
        ("-", Symbol("-")),
        ("<=", Symbol("<=")),
        ("größe", Symbol("größe")),
        (":agent-kind", Keyword("agent-kind")),
        ('"a\\n\\"b\\" \\u00e9 \\ud83d\\ude00"', String('a\n"b" é 😀')),
        ('"two\nlines"', String("two\nlines")),
        ("0", Number(0)),
        ("-12", Number(-12)),
        ("1.5e3", Number(1500.0)),
        ("true", Constant(True)),
        ("false", Constant(False)),
        ("nil", Constant(None)),
        ("()", ListForm(())),
        (
            "(a [1] {:b 2})",
            ListForm((Symbol("a"), VectorForm((Number(1),)), MapForm(((Keyword("b"), Number(2)),)))),
        ),
        ('{"b c" nil}', MapForm(((String("b c"), Constant(None)),))),
    ],
)
def test_every_form_is_read(text: str, form: object) -> None:
    assert read_single_form(text) == form


def test_comments_are_skipped_and_block_comments_nest() -> None:
    assert read_forms("; one\na ;two\n#| three #| four |# ( |# b\n;end") == [Symbol("a"), Symbol("b")]


def test_positions_are_correct_after_lines_strings_and_comments() -> None:
    text = '(a\n  "two\nlines" ; c\n  #| x\n |# [b :c])\r\n d'
    outer, last = read_forms(text)
    assert isinstance(outer, ListForm)
    assert [item.position for item in outer.items] == [Position(1, 2), Position(2, 3), Position(5, 5)]
    vector = outer.items[2]
    assert isinstance(vector, VectorForm)
    assert [item.position for item in vector.items] == [Position(5, 6), Position(5, 8)]
    assert last.position == Position(6, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a\n (b)", "f.lisp:1:1: '(' is never closed"),
        ("a)", "f.lisp:1:2: ')' has no matching opening bracket"),
        ("(a]", "f.lisp:1:3: Expected ')' for the '(' at 1:1, found ']'"),
        ('(a\n "b', "f.lisp:2:2: The string is never closed"),
        ("a #| b", "f.lisp:1:3: '#|' is never closed"),
        ('"a\n \\q"', "f.lisp:2:2: Unknown escape \\q"),
        ('"\\ud800"', "f.lisp:1:2: \\ud800 is an unpaired surrogate"),
        ("{:a 1 :a 2}", "f.lisp:1:7: The key 'a' is duplicated"),
        ('{:a 1 "a" 2}', "f.lisp:1:7: The key 'a' is duplicated"),
        ("{:a}", "f.lisp:1:2: A key without a value"),
        ("{a 1}", "f.lisp:1:2: A map key must be a keyword or a string"),
        ("12a", "f.lisp:1:1: '12a' is not a number"),
        ("007", "f.lisp:1:1: '007' is not a number"),
        ("+5", "f.lisp:1:1: '+5' is not a number"),
        ("9007199254740993", "f.lisp:1:1: The number 9007199254740993 is too large"),
        ("1e999", "f.lisp:1:1: The number 1e999 is too large"),
        ("a'b", 'f.lisp:1:2: "\'" is not allowed in a name'),
        (": a", "f.lisp:1:1: A colon without a name"),
        ('"a"b', 'f.lisp:1:1: Missing space after "a"'),
        ('a"b"', "f.lisp:1:1: Missing space after a"),
        ("a\u00a0b", "f.lisp:1:2: '\\xa0' is not a space"),
        ("a\0", "f.lisp:1:2: The character U+0000 is not text"),
        ("\ud800", "f.lisp:1:1: The character U+D800 is not text"),
        ("\ufeffa", "f.lisp:1:1: The text starts with a byte order mark"),
        ("a" * 300, "f.lisp:1:1: A name of 300 characters"),
    ],
)
def test_a_problem_is_reported_with_its_position(text: str, message: str) -> None:
    assert message in refused(text)


def test_several_problems_are_reported_at_once() -> None:
    assert refused('(1a\n "\\q"\n {b 2})').count("\n") == 2


def test_one_form_is_expected_where_one_is_asked_for() -> None:
    for text in ("", "a b"):
        with pytest.raises(InvalidDefinition, match="Expected one form"):
            read_single_form(text)


@pytest.mark.parametrize(
    "bomb",
    [
        "(" * 10_000,
        "[{:a " * 5_000,
        "(" * 100_000 + ")" * 100_000,
        '"' + "x" * 1_000_000 + '"',
        '"' + "x" * 1_000_000,
        '"\\' * 100_000,
        "#|" * 100_000,
        "9" * 200_000,
        "a" * 200_000,
        "'" * 200_000,
        "\0" * 200_000,
        "(a b)".encode("utf-16").decode("latin-1"),
        "é" * 200_000,
    ],
    ids=lambda bomb: f"{bomb[:8]!r}-{len(bomb)}",
)
def test_a_bomb_is_refused_at_once(bomb: str) -> None:
    within(0.1, lambda: refused(bomb))


@pytest.mark.parametrize("many", ["() ", "a ", "1\n", "{}"])
def test_a_text_of_too_many_forms_is_refused_before_a_second(many: str) -> None:
    assert "more than 50000 forms" in within(1, lambda: refused(many * 60_000))


def problems(text: str) -> list[Problem]:
    try:
        read_forms(text)
    except InvalidDefinition as unreadable:
        return unreadable.problems
    return []


@given(st.text(max_size=200) | st.text(alphabet='()[]{}:"\\;#| \na1-.@?', max_size=200))
def test_any_text_is_forms_or_problems_at_places_that_are_there(text: str) -> None:
    lines = text.split("\n")
    for problem in problems(text):
        assert problem.position.column <= len(lines[problem.position.line - 1]) + 1
