"""Typed values: encoded as JSON and decoded through their annotations."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict as CurrentTypedDict

from nerve.core.json_codec import decode_json, encode_json
from nerve.core.json_schema import find_schema_error, find_validation_error
from nerve.core.value_codec import FunctionSignature, ValueCodec
from nerve.errors import InvalidValue


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    count: int = 1
    price: Decimal = Decimal(0)
    picture: bytes = b""


@dataclass
class Order:
    lines: list[Line]
    placed: datetime
    color: Color | None = None
    notes: dict[str, Path] = field(default_factory=dict)


class Customer(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    id: UUID
    born: date | None = None
    order: Order | None = None


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=2)
times = st.datetimes(timezones=st.just(UTC))
lines = st.builds(Line, texts, st.integers(-(2**53), 2**53), decimals, st.binary(max_size=8))
orders = st.builds(
    Order, st.lists(lines, max_size=3), times, st.none() | st.sampled_from(Color), st.just({"a": Path("x/y")})
)
customers = st.builds(Customer, id=st.uuids(), born=st.none() | st.dates(), order=st.none() | orders)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    str: texts,
    bytes: st.binary(max_size=20),
    Decimal: decimals,
    UUID: st.uuids(),
    datetime: times,
    timedelta: st.timedeltas(timedelta(0), timedelta(days=9)),
    Color: st.sampled_from(Color),
    Path: st.just(Path("a/b")),
    Line: lines,
    Order: orders,
    Customer: customers,
    list[bytes]: st.lists(st.binary(max_size=4), max_size=3),
    tuple[int, str]: st.tuples(st.integers(0, 9), texts),
    set[int]: st.sets(st.integers(0, 9)),
    str | int | None: st.none() | st.integers(0, 9) | texts,
    dict[str, Line]: st.dictionaries(texts, lines, max_size=2),
}


CODECS = {annotation: ValueCodec(annotation, "It{field}") for annotation in VALUES}


@given(st.data(), st.sampled_from(list(VALUES)))
def test_a_value_is_the_same_after_a_round_trip_through_json(data: st.DataObject, annotation: Any) -> None:
    value = data.draw(VALUES[annotation])
    codec = CODECS[annotation]
    stored = encode_json(codec.encode(value))
    assert codec.decode(decode_json(stored)) == value
    assert codec.normalize(value) == codec.normalize(decode_json(stored)) == codec.encode(value)


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (int, "3", r"It must be a valid integer, got '3' of type str"),
        (int, True, r"It must be a valid integer, got True of type bool"),
        (Line, {"sku": "a"}, r"It must be an instance of Line, got \{'sku': 'a'\} of type dict"),
        (list[int], [1, "x"], r"It\[1\] must be a valid integer, got 'x' of type str"),
        (
            Order,
            Order([Line("a", "two")], datetime.now(UTC)),
            r"It\.lines\[0\]\.count must be a valid integer, got 'two'",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        ValueCodec(annotation, "It{field}").encode(value)


@pytest.mark.parametrize(
    ("annotation", "data", "problem"),
    [
        (Line, {"sku": 3}, "It.sku must be a valid string, got 3 of type int"),
        (Line, {}, "It.sku is invalid: Field required, got {} of type dict"),
        (Color, "green", "It must be 'red' or 'blue', got 'green' of type str"),
        (
            Order,
            {"lines": [{"sku": "a", "count": 1.5}], "placed": "2026-01-01T00:00:00Z"},
            "It.lines[0].count ",
        ),
    ],
)
def test_stored_data_of_another_type_is_refused_with_its_field(
    annotation: Any, data: Any, problem: str
) -> None:
    with pytest.raises(InvalidValue) as error:
        ValueCodec(annotation, "It{field}").decode(data)
    assert str(error.value).startswith(problem)


def test_a_type_that_cannot_be_encoded_is_refused() -> None:
    class Socket:
        pass

    with pytest.raises(TypeError, match="It has the type Socket, which cannot be encoded as JSON"):
        ValueCodec(Socket, "It{field}").encode(Socket())


def test_bytes_in_a_model_without_base64_are_refused_with_the_fix() -> None:
    class Picture(BaseModel):
        data: bytes

    with pytest.raises(TypeError, match="It has bytes that are not UTF-8 in a pydantic model"):
        ValueCodec(Picture, "It{field}").encode(Picture(data=b"\xff"))


def test_arguments_are_recorded_by_name_without_defaults() -> None:
    def ship(order: Order, *skus: str, fast: bool = False, **labels: Color) -> None: ...

    signature = FunctionSignature(ship, "step 'ship'")
    order = Order([], datetime(2026, 1, 1, tzinfo=UTC))
    encoded = signature.encode_arguments((order, "a", "b"), {"box": Color.RED})
    assert encode_json(encoded["skus"]) == '["a","b"]'
    assert encoded["labels"] == {"box": "red"}
    assert "fast" not in encoded
    bound = signature.decode_arguments(decode_json(encode_json(encoded)))
    assert (bound.args, bound.kwargs) == ((order, "a", "b"), {"box": Color.RED})


def test_classes_that_are_local_to_a_function_are_found() -> None:
    @dataclass
    class Local:
        n: int

    def use(it: Local) -> Local: ...

    signature = FunctionSignature(use, "step 'use'")
    assert signature.codecs["it"].decode({"n": 3}) == Local(3)
    assert signature.result.encode(Local(4)) == {"n": 4}


def test_a_partial_a_builtin_and_a_callable_object_have_a_signature() -> None:
    def paint(size: int, color: Color) -> Color: ...

    class Painter:
        def __call__(self, color: Color) -> Color: ...

    for function in (partial(paint, 3), Painter()):
        signature = FunctionSignature(function, "update 'paint'")
        assert signature.codecs["color"].decode("red") is Color.RED
        assert signature.result.encode(Color.RED) == "red"
    [codec] = FunctionSignature([].append, "update 'add'").codecs.values()
    assert codec.decode({"any": 1}) == {"any": 1}


@dataclass
class Branch:
    price: Decimal
    lines: list[Line]
    parts: list[Branch]


def test_a_json_schema_has_no_references_except_recursive_ones() -> None:
    schema = ValueCodec(Branch, "x").json_schema()
    assert schema["properties"]["lines"]["items"]["properties"]["sku"] == {"type": "string"}
    assert schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Branch"}
    assert list(schema["$defs"]) == ["Branch"]


def test_a_json_schema_accepts_a_decimal_as_text_or_number() -> None:
    schema = ValueCodec(Decimal, "x").json_schema()
    assert schema["format"] == "decimal"
    assert find_schema_error(schema) == ""
    assert [find_validation_error(value, schema) == "" for value in (1.5, "1.50", "one")] == [
        True,
        True,
        False,
    ]


def test_a_type_without_a_schema_gives_an_empty_one() -> None:
    assert ValueCodec(Callable[[], int], "x").json_schema() == {}


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    order: Order | None = None


class Ignoring(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Pair(CurrentTypedDict, total=False):
    one: int
    two: int


class OldPair(TypedDict):
    one: int


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(alias="full_name")


@pytest.mark.parametrize(
    ("annotation", "data", "problem"),
    [
        (Line, {"sku": "a", "cuont": 1}, "It has no field 'cuont'. Did you mean 'count'?"),
        (Line, {"sku": "a", "x": 1}, "It has no field 'x'. Known fields: sku, count, price, picture"),
        (
            Customer,
            {
                "id": str(UUID(int=1)),
                "order": {"lines": [{"sku": "a", "cnt": 1}], "placed": "2026-01-01T00:00Z"},
            },
            "It.order.lines[0] has no field 'cnt'. Did you mean 'count'?",
        ),
        (dict[str, Line], {"a": {"sku": "a", "cnt": 1}}, "It.a has no field 'cnt'. Did you mean 'count'?"),
        (tuple[int, Line], [1, {"sku": "a", "cnt": 1}], "It[1] has no field 'cnt'. Did you mean 'count'?"),
        (Line | Customer, {"sku": "a", "cnt": 1}, "It has no field 'cnt'. Did you mean 'count'?"),
        (
            Open,
            {"order": {"lines": [], "placed": "2026-01-01T00:00Z", "note": 1}},
            "It.order has no field 'note'",
        ),
        (Named, {"full_name": "a", "fullname": "b"}, "It has no field 'fullname'. Did you mean 'full_name'?"),
        (Branch, {"parts": [{"part": []}]}, "It.parts[0] has no field 'part'. Did you mean 'parts'?"),
        (Line, {"skuu": "a"}, "It has no field 'skuu'. Did you mean 'sku'?"),
        (Pair, {"one": 1, "tow": 2}, "It has no field 'tow'. Did you mean 'two'?"),
    ],
)
def test_data_from_outside_with_an_unknown_key_is_refused_with_the_nearest_name(
    annotation: Any, data: Any, problem: str
) -> None:
    codec = ValueCodec(annotation, "It{field}")
    with pytest.raises(InvalidValue) as error:
        codec.normalize(data)
    assert str(error.value).startswith(problem)


def test_stored_data_may_have_a_field_that_the_code_has_no_more() -> None:
    assert ValueCodec(Line, "It{field}").decode({"sku": "a", "weight": 1}) == Line("a")


@pytest.mark.parametrize(
    ("annotation", "data"),
    [
        (Open, {"anything": {"a": 1}}),
        (Ignoring, {"other": 1}),
        (Named, {"name": "a"}),
        (Named, {"full_name": "a"}),
        (dict[str, Line], {"a": {"sku": "a"}}),
        (dict[str, Line], {"a": Line("a")}),
        (dict, {"a": 1}),
        (Any, {"a": 1}),
        (Line | Customer, {"id": str(UUID(int=1))}),
    ],
)
def test_data_with_the_keys_of_its_type_is_accepted(annotation: Any, data: Any) -> None:
    ValueCodec(annotation, "It{field}").normalize(data)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads it there")
def test_a_type_that_pydantic_refuses_is_an_error_with_its_name() -> None:
    with pytest.raises(
        TypeError, match=r"It has the type OldPair, .*: Please use `typing_extensions\.TypedDict`"
    ):
        ValueCodec(OldPair, "It{field}").normalize({"one": 1})


def test_the_schema_of_an_object_says_that_it_has_no_other_fields() -> None:
    schema = ValueCodec(Customer, "x").json_schema()
    assert schema["additionalProperties"] is False
    assert "unexpected" in find_validation_error({"id": str(UUID(int=1)), "x": 1}, schema)
    assert ValueCodec(Open, "x").json_schema()["additionalProperties"] is True
