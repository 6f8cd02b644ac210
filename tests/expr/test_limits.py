"""Resource bombs and escapes are rejected within the limits of fuel, memory and syntax."""

import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from nerve.expr import EvalError, EvaluationLimits, ExprError, compile, compile_template

CORPORA = Path(__file__).parent / "corpora"
BOMBS = (CORPORA / "bombs.txt").read_text().splitlines()
ESCAPES = (CORPORA / "escapes.txt").read_text().split("\n")[:-1]
SCOPE = {
    "inputs": {"name": "n", "count": 1, "list": [1]},
    "context": {"test": {"success": True, "output": "out"}},
}
GENEROUS = 2.0
"""Seconds of the processor; a bomb takes some 20 ms."""


def test_the_corpora_have_the_required_size() -> None:
    assert len(set(BOMBS)) >= 60
    assert len(set(ESCAPES)) >= 300


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_resource_bomb_is_rejected_before_it_allocates(bomb: str) -> None:
    expression = compile(bomb)
    began = time.process_time()
    with pytest.raises(EvalError) as caught:
        expression({})
    assert time.process_time() - began < GENEROUS
    assert any(word in caught.value.message for word in ("steps", "characters", "elements", "nested"))


def test_no_resource_bomb_takes_more_than_ten_mebibytes() -> None:
    for bomb in BOMBS:
        expression = compile(bomb)
        tracemalloc.start()
        with pytest.raises(EvalError):
            expression({})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 * 2**20, bomb


@pytest.mark.parametrize(
    "source",
    [
        "(" * 500 + "1" + ")" * 500,
        "[" * 100 + "]" * 100,
        "!" * 500 + "1",
        "1" + "+1" * 1000,
        "a" + " || a" * 500,
        "a ? b : " * 300 + "c",
        "2 ** " * 300 + "1",
        "`${" * 100 + "1" + "}`" * 100,
        "{a:" * 100 + "1" + "}" * 100,
        "a" + "[a" * 200 + "]" * 200,
        "a.map(x => " * 100 + "x" + ")" * 100,
        "-" * 20 + "1",
        "'" + "a" * 5000 + "'",
        " " * 5000 + "1",
    ],
)
def test_a_text_that_is_too_deep_or_too_long_is_refused(source: str) -> None:
    with pytest.raises(ExprError):
        compile(source)


def test_what_is_just_deep_enough_works() -> None:
    assert compile("(" * 30 + "1" + ")" * 30)({}) == 1
    assert compile("1" + " + 1" * 100)({}) == 101
    assert compile("[" * 30 + "]" * 30)({})


def test_long_property_chains_have_no_extra_cost() -> None:
    value: dict[str, Any] = {}
    deep = value
    for _ in range(1000):
        deep["a"] = deep = {}
    assert compile("v" + ".a" * 1000)({"v": value}) == {}


def test_the_host_can_set_the_fuel() -> None:
    source = "Array.from({length: 1000}, (_, i) => i).map(x => x * 2).length"
    assert compile(source)({}) == 1000
    with pytest.raises(EvalError, match="more than 100 steps"):
        compile(source, limits=EvaluationLimits(fuel=100))({})


def test_strings_of_the_host_are_charged_when_they_are_scanned() -> None:
    scope = {"text": "é" * 1_000_000, "same": "é" * 1_000_000, "rows": list(range(10_000))}
    for source in [
        "rows.map(x => text.length)",
        "rows.map(x => text === same)",
        "rows.map(x => text < same)",
    ]:
        with pytest.raises(EvalError, match="steps"):
            compile(source)(scope)
    for source in ["rows.map(x => text.includes('x'))", "rows.map(x => +text)", "rows.map(x => text[0])"]:
        with pytest.raises(EvalError, match="steps"):
            compile(source)(scope)


@pytest.mark.parametrize("escape", ESCAPES)
def test_an_escape_is_refused_or_plain_data(escape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "CANARY", "in a coal mine")
    for evaluate in (compile, lambda text: compile_template(f"{{{{ {text} }}}}")):
        try:
            value = evaluate(escape)(SCOPE)
        except (ExprError, EvalError):
            continue
        assert "coal mine" not in json.dumps(value, allow_nan=False)


def test_no_escape_changes_the_scope() -> None:
    assert SCOPE == {
        "inputs": {"name": "n", "count": 1, "list": [1]},
        "context": {"test": {"success": True, "output": "out"}},
    }
