"""Values: JSON in and out, without copies, read only where an expression names them."""

import contextlib
import enum
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.expr import EvalError, ExprError, compile, compile_template

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda x: x % 1
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT.filter(lambda key: key != "__proto__"), inner),
    max_leaves=20,
)


@given(JSON)
def test_a_value_passes_through_unchanged(value: Any) -> None:
    assert compile("value")({"value": value}) == value
    assert compile("[value, {value}]")({"value": value}) == [value, {"value": value}]


@given(JSON)
def test_a_value_survives_its_json_text(value: Any) -> None:
    scope = {"value": value}
    assert json.loads(compile("JSON.stringify(value)")(scope)) == value
    assert compile("JSON.parse(JSON.stringify(value))")(scope) == value


@given(TEXT, st.integers(0, 40))
def test_the_parts_of_a_string_make_up_the_string(text: str, place: int) -> None:
    scope = {"text": text, "at": place}
    assert compile("text.slice(0, at) + text.slice(at)")(scope) == text
    assert compile("text.split('').join('')")(scope) == text
    assert compile("text.length")(scope) == len(text.encode("utf-16-le")) // 2


@given(st.text() | st.text("()[]{}.?:,'`$=>!+-*/x1 "))
def test_any_text_is_an_expression_or_an_error_of_one(text: str) -> None:
    for evaluate in (compile, compile_template):
        with contextlib.suppress(ExprError, EvalError):
            evaluate(text)({"x": {"x": 1}})


def test_values_without_a_json_form_are_exported_like_json_stringify() -> None:
    assert compile("undefined")({}) is None
    assert compile("[NaN, Infinity, undefined, -0, 4 / 2]")({}) == [None, None, None, 0, 2]
    assert compile("({a: undefined, b: NaN})")({}) == {"b": None}
    assert math.copysign(1, compile("-0")({})) == 1
    assert type(compile("10 / 2")({})) is int


def test_an_unpaired_surrogate_is_not_exported() -> None:
    with pytest.raises(EvalError, match="unpaired surrogate"):
        compile("'😀'[0]")({})
    assert compile("'😀'[0] + '😀'[1]")({}) == "😀"


def test_host_values_are_not_copied() -> None:
    large = {"rows": [[number] for number in range(1000)]}
    assert compile("inputs.rows")({"inputs": large}) is large["rows"]
    assert compile("inputs.rows.filter(row => row[0] > 997)")({"inputs": large})[0] is large["rows"][998]


class Lazy(Mapping[str, Any]):
    """A mapping that records the keys that were read."""

    def __init__(self, **values: Any) -> None:
        self.values_, self.read = values, list[str]()

    def __getitem__(self, key: str) -> Any:
        self.read.append(key)
        return self.values_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)

    def __contains__(self, key: object) -> bool:
        return key in self.values_


def test_a_lazy_mapping_is_read_only_where_the_expression_reads() -> None:
    view = Lazy(test=Lazy(success=True), other=1)
    assert compile("context.test.success === true && !context.missing")({"context": view}) is True
    assert view.read == ["test"]
    assert compile("context")({"context": view}) == {"test": {"success": True}, "other": 1}
    assert compile("Object.keys(context)")({"context": view}) == ["test", "other"]
    assert compile("context?.test['success']")({"context": view}) is True


def test_integers_that_javascript_would_round_are_rejected() -> None:
    scope = {"inputs": {"id": 2**53 + 1, "ids": [2**60], "fine": 2**53}}
    assert compile("inputs.fine")(scope) == 2**53
    for source in ["inputs.id", "inputs.ids[0]", "inputs.ids.join()", "inputs.ids.includes(1)"]:
        with pytest.raises(EvalError, match="beyond ±2\\^53; pass it as a string"):
            compile(source)(scope)


class Colour(enum.StrEnum):
    RED = "red"


def test_only_json_values_are_accepted() -> None:
    assert compile("colour + 1")({"colour": Colour.RED}) == "red1"
    assert compile("pair.length")({"pair": (1, 2)}) == 2
    assert compile("pair")({"pair": (1, 2)}) == [1, 2]
    for foreign in [date(2026, 1, 1), object(), b"bytes", {1}]:
        with pytest.raises(EvalError, match="is not a JSON value"):
            compile("inputs.it")({"inputs": {"it": foreign}})


def test_python_attributes_are_undefined() -> None:
    assert (
        compile("[inputs.items, inputs.__class__, inputs.get, text.format]")({"inputs": {}, "text": "a"})
        == [None] * 4
    )


@pytest.mark.parametrize(
    ("source", "paths", "opaque"),
    [
        ("context.test.success === true", {("context", "test", "success")}, set()),
        ("context['check-it'].output[0].name", {("context", "check-it", "output")}, set()),
        (
            "context?.test?.data.items.map(x => x.id + inputs.id)",
            {("context", "test", "data", "items"), ("inputs", "id")},
            set(),
        ),
        ("context[inputs.key]", {("context",), ("inputs", "key")}, {"context"}),
        ("JSON.stringify(context)", {("context",)}, {"context"}),
        ("[1].map(context => context.x)", set(), set()),
        ("`${a.b}` + ({c, ...d.e})[f]", {("a", "b"), ("c",), ("d", "e"), ("f",)}, {"c", "f"}),
        ("(a.b).c", {("a", "b")}, set()),
    ],
)
def test_the_paths_it_reads_are_known_before_it_runs(source: str, paths: set[Any], opaque: set[str]) -> None:
    expression = compile(source)
    assert expression.paths == paths
    assert expression.opaque_names == opaque
    assert expression.names == {path[0] for path in paths}
