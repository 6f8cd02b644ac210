"""Good workflows with anything changed: they are read, or what is wrong is told, and nothing else happens."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nerve.notations import NOTATIONS, SUFFIXES, read_source
from nerve.spec.checker import check_document
from nerve.text.source import InvalidDefinition, Problem

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path
    for folder in ("examples/workflows", "tests/notations/failures", "tests/notations/fan_out")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in SUFFIXES and path.name not in ("expected.json", "scene.json")
)
PIECES = [
    '"',
    "'",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "{{",
    "}}",
    ":",
    ",",
    "-",
    "|",
    "#",
    "\\",
    "\t",
    "\r\n",
    "\n",
    "  ",
]
PIECES += [
    "null",
    "3",
    "kind",
    "steps",
    "on_error",
    "\u2028",
    "\xa0",
    "日本",
    "😀",
    "```",
    "~a",
    "?x",
    "$1",
    "@",
    "&a",
    "*a",
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    1.5,
    "",
    "x",
    "{{",
    "1 +",
    "skip",
    [],
    {},
    [1],
    [[]],
    {"a": 1},
    {"str": 1},
]
VALUES += [
    {"kind": "prompt"},
    {"kind": "goto", "state": "nowhere"},
    {"kind": 3},
    {"kind": {}},
    {"knd": "bash"},
]
KEYS = [
    "kind",
    "id",
    "name",
    "steps",
    "body",
    "next",
    "on_error",
    "retry",
    "expect",
    "env",
    "states",
    "cases",
    "wibble",
]


def problems_of(text: str, notation: str) -> list[Problem]:
    try:
        return check_document(read_source(text, f"f.{notation}", notation)).errors
    except InvalidDefinition as error:
        return error.problems


def held(text: str, notation: str) -> None:
    """Every problem has a place in the text, and says what to do."""
    lines = text.split("\n")
    for problem in problems_of(text, notation):
        assert 1 <= problem.position.line <= len(lines), problem
        assert problem.position.column <= len(lines[problem.position.line - 1]) + 1, problem
        assert problem.fix or "Did you mean" in problem.message or "; " in problem.message, problem


def changed(text: str, chance: Random) -> str:
    """A text with something taken away, put in, or put elsewhere."""
    start, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
    match chance.randrange(4):
        case 0:
            return text[:start] + text[start + chance.choice([1, 2, 20]) :]
        case 1:
            return text[:start] + text[end : end + 30] + text[start:]
        case _:
            return text[:start] + chance.choice(PIECES) + text[start:]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every object or list in a value, with each of its keys."""
    keys = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    return [pair for key in keys for pair in [(value, key), *places(value[key])]]


def change(data: Any, chance: Random) -> None:
    """Put another value somewhere into a workflow, or another key."""
    around, key = chance.choice(places(data))
    match chance.randrange(3):
        case 0 if isinstance(around, dict):
            around[chance.choice(KEYS)] = around.pop(key)
        case 1:
            del around[key]
        case _:
            around[key] = chance.choice(VALUES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_with_a_changed_text_is_read_or_reported(path: Path) -> None:
    chance, text = Random(path.name), path.read_text()
    for _ in range(100):
        held(changed(text, chance), SUFFIXES[path.suffix].name)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_workflow_with_changed_data_is_read_or_reported(path: Path, notation: str) -> None:
    chance, whole = Random(path.name), json.dumps(read_source(path.read_text(), str(path)).data)
    for _ in range(30):
        data = json.loads(whole)
        change(data, chance)
        held(NOTATIONS[notation].write(data), notation)
