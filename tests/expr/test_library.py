"""Every built-in method and function agrees with QuickJS, also for unusual arguments."""

import random

import pytest

from expr.oracle import Oracle, Refusal, ours
from nerve.expr import compile
from nerve.expr.library import CONSTANTS, FUNCTIONS, METHODS_BY_KIND
from nerve.expr.library.table import LibraryFunction

STRINGS = [
    "''",
    "'abc'",
    "'a-b-a'",
    "' x '",
    "'12.50'",
    "'😀é'",
    "'Straße'",
    "'ΑΣ'",
    "'-0x1f'",
    "'aaa'",
    "'\\ud83d'",
]
NUMBERS = [
    "0",
    "-0",
    "1",
    "2",
    "-1",
    "3.7",
    "-2.5",
    "1e21",
    "123.456",
    "NaN",
    "Infinity",
    "-Infinity",
    "255",
    "1e-7",
]
ARRAYS = [
    "[]",
    "[1, 2, 3]",
    "['b', 'a', null]",
    "[[1, [2]], 3, undefined]",
    "[{a: 1}, NaN, -0]",
    "[10, 9, 1, 'x']",
]
OBJECTS = [
    "({})",
    "({b: 1, a: 2})",
    "({10: 'x', 2: 'y', k: [1]})",
    "({length: 2, 0: 'p'})",
    "[['k', 1], ['10', 2]]",
]
OTHERS = ["null", "undefined", "true", "false", "'{\"a\": [1, 2.0]}'", "'[1'", "[['k', 1]]"]
ANY = [*STRINGS, *NUMBERS, *ARRAYS, *OBJECTS, *OTHERS]
RECEIVERS = {"string": STRINGS, "number": NUMBERS, "array": ARRAYS, "boolean": ["true", "false"]}
CALLBACKS = [
    "x => x",
    "(x, i) => i",
    "x => [x, x]",
    "(x, i) => i > 0",
    "x => typeof x",
    "(a, b) => `${a}${b}`",
    "Boolean",
]
COMPARISONS = [
    "(a, b) => a - b",
    "(a, b) => 0",
    "(a, b) => String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0",
]
METHODS = [(kind, entry) for kind, table in METHODS_BY_KIND.items() for entry in table.values()]
TRIES = 60


def arguments(draw: random.Random, entry: LibraryFunction) -> str:
    most = 3 if entry.max_arguments is None else entry.max_arguments
    chosen = [draw.choice(ANY) for _ in range(draw.randint(0, most + (draw.random() < 0.1)))]
    if entry.callback_position is not None and (
        len(chosen) > entry.callback_position or entry.callback_position < entry.required_arguments
    ):
        options = COMPARISONS if "ort" in entry.name else CALLBACKS
        chosen[entry.callback_position : entry.callback_position + 1] = [draw.choice(options)]
    if entry.name == "Object.assign":
        chosen[:1] = ["{}"]
    return ", ".join(chosen)


def agreed(sources: list[str]) -> int:
    """The number of expressions whose value agrees with JavaScript."""
    oracle, found = Oracle({}), 0
    for source in sources:
        try:
            here = ours(source, {})
        except Refusal:
            continue
        assert here == oracle(source), source
        found += 1
    return found


@pytest.mark.parametrize(("kind", "entry"), METHODS, ids=lambda one: getattr(one, "name", one))
def test_a_method_returns_the_same_as_in_javascript(kind: str, entry: LibraryFunction) -> None:
    draw = random.Random(f"{kind}.{entry.name}")
    made = [f"({draw.choice(RECEIVERS[kind])}).{entry.name}({arguments(draw, entry)})" for _ in range(TRIES)]
    assert agreed(made) > TRIES / 10


@pytest.mark.parametrize("entry", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_a_function_returns_the_same_as_in_javascript(entry: LibraryFunction) -> None:
    draw = random.Random(entry.name)
    assert agreed([f"{entry.name}({arguments(draw, entry)})" for _ in range(TRIES)]) > 0


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_that_of_javascript(name: str) -> None:
    assert agreed([name]) == 1


@pytest.mark.parametrize("method", ["toUpperCase", "toLowerCase"])
def test_the_case_of_every_character_is_that_of_javascript_or_refused(method: str) -> None:
    oracle, convert = Oracle({}), compile(f"text.{method}()")
    for start in range(0, 0x20000, 0x100):
        if 0xD800 <= start < 0xE000:
            continue
        codes = list(range(start, start + 0x100))
        _, there = oracle(f"{codes}.map(code => String.fromCodePoint(code).{method}())")
        for code, expected in zip(codes, there, strict=True):
            try:
                assert convert({"text": chr(code)}) == expected
            except RuntimeError:
                assert ord(chr(code)) > 0x7F


@pytest.mark.parametrize(
    "source",
    [
        "[1e21, 1e-7, 123456789012345680000, 0.000001, 5e-324, 1.7976931348623157e308].join()",
        "[-0, 100, 1e100, 0.1 + 0.2, 1 / 3, 1e16, 123e-20, 4294967296].map(String)",
        "[0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994].map(Math.round).map(x => 1 / x)",
        "[1.005, 1.45, 8.345, 0.5, 1.5, 2.5, -2.5, 1e20, -1e-10].map(x => x.toFixed(2) + x.toFixed(0))",
        "[-7 % 3, 7 % -3, -6 % 3, 5.5 % 2, 0 % 5, 5 % Infinity].map(x => 1 / x)",
        "[2 ** 53 + 1, 2 ** 53 * 3, 9007199254740993 - 1, 0 * -1].join()",
        "['b', undefined, 'a', 'B', 10, 9].toSorted()",
        "[{k: 1, v: 'a'}, {k: 0, v: 'b'}, {k: 1, v: 'c'}].toSorted((a, b) => a.k - b.k).map(x => x.v)",
        "'aXbXc'.split('X').toReversed().map((part, index) => `${index}${part}`)",
        "JSON.stringify({b: [1, {}], a: 'é\\u0007\\ud83d', 2: null, 1: undefined, c: NaN}, null, 2)",
        "Object.entries({b: 1, 10: 2, a: 3, 9: 4}).map(([key, value]) => key + value)",
        "[null == undefined, null == 0, '' == 0, [1] == 1, [] == '', 'a' == ['a'], true == '1', NaN == NaN]",
        "['\\uff5e' < '\\u{1f600}', 'a' < 'B', '10' < '9', '10' < 9, null < 1, undefined < 1, [2] > 1]",
        "'a😀b'.split('').length + '😀'.at(0).length + [...'a😀'].length + 'x😀'.indexOf('\\ude00')",
    ],
)
def test_the_known_pitfalls_are_those_of_javascript(source: str) -> None:
    assert agreed([source]) == 1
