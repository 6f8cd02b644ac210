"""JSON encoding of values."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.json_codec import (
    decode_json,
    encode_json,
    find_unsafe_integer,
    parse_strict_json,
    short_sha256,
)
from nerve.errors import NotJson

characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_a_json_value_survives_a_round_trip(value: Any) -> None:
    assert decode_json(encode_json(value)) == value
    assert decode_json(encode_json(value, canonical=True)) == value


@given(json_values)
def test_encoding_a_decoded_value_gives_the_same_json(value: Any) -> None:
    assert encode_json(decode_json(encode_json(value))) == encode_json(value)


@given(st.dictionaries(texts, scalars), st.randoms())
def test_the_order_of_keys_does_not_change_canonical_json(value: dict[str, Any], chance: Any) -> None:
    items = list(value.items())
    chance.shuffle(items)
    assert encode_json(dict(items), canonical=True) == encode_json(value, canonical=True)


@given(st.text() | st.dictionaries(st.text(), st.text()))
def test_any_text_can_be_shown_even_unpaired_surrogates(value: Any) -> None:
    encode_json(value, max_depth=None).encode()
    assert short_sha256(encode_json(value, True, None))


@given(st.text() | st.dictionaries(st.text(), st.text()))
def test_a_string_is_encoded_exactly_or_rejected(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with pytest.raises(NotJson, match="an unpaired surrogate") as caught:
            encode_json(value)
        assert str(caught.value).encode()
    else:
        assert decode_json(encode_json(value)) == value


keys = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["0", "1", "true", "null"])


@given(st.dictionaries(keys, scalars), st.booleans())
def test_colliding_keys_are_rejected(value: dict[Any, Any], canonical: bool) -> None:
    shown = decode_json(encode_json(value, canonical, None))
    if len(shown) == len(value):
        assert decode_json(encode_json(value, canonical)) == shown
        return
    with pytest.raises(NotJson, match=r"an object with two keys that both become '.*' at "):
        encode_json([[value]], canonical)
    with pytest.raises(NotJson, match=r"an object with two keys that both become"):
        encode_json({"first": [value], "last": {"objects": [{}, {}]}}, canonical)


def test_a_too_large_value_is_named_with_its_size_and_location() -> None:
    value = {"small": 1, "a": [{"b": "é" * 20}, 2]}
    assert encode_json(value, max_bytes=80)
    with pytest.raises(
        NotJson, match=r"a value of type str at a\[0\].b has 42 bytes as JSON, .* limit of 40"
    ):
        encode_json(value, max_bytes=40)
    with pytest.raises(NotJson, match="a value of type list has 41 bytes"):
        encode_json([1] * 20, max_bytes=40)


def test_tuples_become_lists_and_numeric_keys_become_strings() -> None:
    assert decode_json(encode_json((1, (2,)))) == [1, [2]]
    assert decode_json(encode_json({1: "a", "b": 2}, canonical=True)) == {"1": "a", "b": 2}


Place = tuple[Any, str]


def wrapped(inner: st.SearchStrategy[Place]) -> st.SearchStrategy[Place]:
    in_list = st.tuples(st.lists(scalars, max_size=2), inner).map(
        lambda pair: ([*pair[0], pair[1][0]], f"[{len(pair[0])}]{pair[1][1]}")
    )
    in_dict = st.tuples(st.sampled_from(["a", "b", "key"]), inner).map(
        lambda pair: ({"x": 1, pair[0]: pair[1][0]}, f".{pair[0]}{pair[1][1]}")
    )
    return in_list | in_dict


@given(st.recursive(st.just((object(), "")), wrapped, max_leaves=5))
def test_a_value_that_is_not_json_is_named_with_its_type_and_location(place: Place) -> None:
    value, where = place
    expected = where.removeprefix(".")
    with pytest.raises(NotJson) as caught:
        encode_json(value)
    at = f" at {expected}" if expected else ""
    assert str(caught.value) == (
        f"a value of type object{at} cannot be encoded as JSON; use plain data instead"
    )


def test_text_after_a_value_is_not_valid_json() -> None:
    with pytest.raises(ValueError, match="Extra data"):
        decode_json("1 2")


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


circle: list[Any] = []
circle.append({"again": circle})
deep: Any = object()
for _ in range(200):
    deep = [deep]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"n": math.nan}, "the number nan at n"),
        ([1, math.inf], r"the number inf at \[1\]"),
        ({"a": {(1, 2): 3}}, "a key of type tuple at a"),
        ({math.nan: 3}, "the key nan"),
        ({1, 2}, "a value of type set"),
        (b"raw", "a value of type bytes"),
        (circle, r"a value that contains itself at \[0\].again"),
        (deep, "a value with more than 100 levels of nesting"),
        (nested(101), "a value with more than 100 levels of nesting"),
        ([10**5000], "value cannot be encoded as JSON: Exceeds the limit"),
    ],
)
@pytest.mark.parametrize("canonical", [True, False])
def test_every_kind_of_value_that_is_not_json_is_named(value: Any, said: str, canonical: bool) -> None:
    with pytest.raises(NotJson, match=said):
        encode_json(value, canonical)


@pytest.mark.parametrize("canonical", [True, False])
def test_values_up_to_the_maximum_depth_can_be_decoded_by_every_reader(canonical: bool) -> None:
    assert decode_json(encode_json(nested(100), canonical)) == nested(100)
    assert encode_json([[]] * 1000, canonical)
    assert encode_json(nested(300), canonical, max_depth=None)


@given(json_values)
def test_strict_json_is_parsed_to_its_value(value: Any) -> None:
    if find_unsafe_integer(value) is None:
        assert parse_strict_json(encode_json(value)) == value
    else:
        with pytest.raises(ValueError, match="JSON readers are not exact"):
            parse_strict_json(encode_json(value))


def test_an_unsafe_integer_is_found_anywhere_in_a_value() -> None:
    around: list[Any] = [2**53, -(2**53), 1e300, True, "9" * 20]
    around.append(around)
    assert find_unsafe_integer({"a": around}) is None
    assert find_unsafe_integer({"a": [*around, ({"b": -(2**53) - 1},)]}) == -(2**53) - 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 101 + "]" * 101, "it has more than 100 levels of nesting"),
        ("[" * 100_000, "it has more than 100 levels of nesting"),
        ("NaN", "NaN is not a number in JSON"),
        ("1e999", "1e999 is too large for a number"),
        ("1" + "0" * 400, "too large for a number"),
        ("[9007199254740993]", r"the integer 9007199254740993 is beyond ±2\^53"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ("{", "Expecting property name"),
    ],
)
def test_json_that_cannot_be_stored_is_rejected(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_strict_json(text)
