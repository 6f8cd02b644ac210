"""Tags are short texts; everything else is rejected with one clear message."""

from typing import Any

import pytest

from nerve.core.tags import MAX_TAGS, format_tags, parse_tag, validate_tags


def test_numbers_and_booleans_become_text() -> None:
    tags = {"customer": 42, "rate": 1.5, "paid": True, "stage": "review", "größe": "", "a.b-c_d": False}
    assert validate_tags(tags) == {
        "customer": "42", "rate": "1.5", "paid": "true", "stage": "review", "größe": "", "a.b-c_d": "false",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([("a", "b")], "tags must be a dict"),
        ({"": "x"}, "name of a tag must be 1 to 64 letters, digits, '_', '-' or '.', got ''"),
        ({"a b": "x"}, "got 'a b'"),
        ({"a=b": "x"}, "got 'a=b'"),
        ({"n" * 65: "x"}, "name of a tag must be 1 to 64"),
        ({7: "x"}, "got 7 of type int"),
        ({"a": None}, "Tag 'a' must be a string, a number or a boolean, got None"),
        ({"a": ["x"]}, "Tag 'a' must be a string, a number or a boolean, got ['x'] of type list"),
        ({"a": "x" * 257}, "Tag 'a' has 257 characters. The maximum is 256."),
        ({"a": "\ud800"}, "Tag 'a' contains an unpaired surrogate"),
        ({f"t{n}": n for n in range(MAX_TAGS + 1)}, "A run has at most 32 tags, got 33"),
    ],
)
def test_a_name_or_value_that_a_run_cannot_have_is_rejected(tags: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        validate_tags(tags)
    assert message in str(raised.value)


def test_a_tag_is_read_from_text() -> None:
    assert parse_tag("customer=42") == ("customer", "42")
    assert parse_tag("formula=a=b") == ("formula", "a=b")
    with pytest.raises(ValueError, match="A tag must have the form name=value, got 'customer'"):
        parse_tag("customer")
    with pytest.raises(ValueError, match="name of a tag"):
        parse_tag("=42")


def test_tags_are_shown_in_one_line() -> None:
    assert format_tags({"customer": "42", "stage": "review"}) == "customer=42 stage=review"
