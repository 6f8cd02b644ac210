"""Forms from JSON Schemas: a form that is sent back gives its value, and errors are beside their fields."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.web.json_form import ABSENT, change_rows, encode_value, parse_form, show_form
from nerve.web.rendering import make_environment
from web.form_data import FormReader

ENVIRONMENT = make_environment()
TEMPLATE = ENVIRONMENT.from_string(
    '<form>{% from "parts/form_fields.html" import form_field with context %}{{ form_field(field) }}</form>'
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
plain_texts = texts.filter(lambda text: bool(text.strip()))
numbers = st.one_of(
    st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False, width=32)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 0) -> tuple[dict[str, Any], Any]:
    """A schema and a value that matches it."""
    kinds = ["string", "integer", "number", "boolean", "enum", "any", "strings", "set", "nullable"]
    kind = draw(st.sampled_from(kinds + ["object", "objects", "json"] * (depth < 4)))
    match kind:
        case "string":
            return {"type": "string"}, draw(plain_texts)
        case "integer":
            return {"type": "integer"}, draw(st.integers(-(10**15), 10**15))
        case "number":
            return {"type": "number"}, draw(numbers)
        case "boolean":
            default = draw(st.sampled_from([{}, {"default": True}, {"default": False}]))
            return {"type": "boolean", **default}, draw(st.booleans())
        case "enum":
            choices = draw(st.lists(texts | st.integers(2, 9), min_size=1, max_size=8, unique=True))
            return {"enum": choices}, draw(st.sampled_from(choices))
        case "any":
            return {}, draw(json_values.filter(lambda value: value is not None))
        case "strings":
            return {"type": "array", "items": {"type": "string"}}, draw(
                st.lists(plain_texts, min_size=1, max_size=4)
            )
        case "set":
            choices = draw(st.lists(texts, min_size=1, max_size=5, unique=True))
            value = draw(st.lists(st.sampled_from(choices), min_size=1, unique=True))
            ordered = [choice for choice in choices if choice in value]
            return {"type": "array", "items": {"enum": choices}, "uniqueItems": True}, ordered
        case "nullable":
            return {"type": ["string", "null"]}, draw(plain_texts)
        case "object":
            return draw(objects(depth + 1))
        case "objects":
            schema, first = draw(objects(depth + 1))
            return {"type": "array", "items": schema}, [first] * draw(st.integers(1, 3))
        case _:
            return {"type": "object"}, draw(st.dictionaries(texts, json_values, min_size=1, max_size=3))


@st.composite
def objects(draw: st.DrawFn, depth: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    names = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    properties, required, value = {}, [], {}
    for name in names:
        properties[name], part = draw(typed_values(depth))
        is_present = draw(st.booleans()) or not value or "default" in properties[name]
        if is_present:
            value[name] = part
        if is_present and draw(st.booleans()):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}, value


def submit(schema: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    """Return what a browser sends for the form of a value that the user does not change."""
    reader = FormReader()
    reader.feed(TEMPLATE.render(field=show_form(schema, "v", encode_value(schema, "v", value))))
    return reader.forms[0][1]


@settings(max_examples=150, deadline=None)
@given(objects())
def test_a_form_that_is_sent_back_unchanged_gives_the_value(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    assert parse_form(schema, "v", submit(schema, value)) == (value, {})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "two\nlines"),
        ({"type": "string"}, "\n\nleading"),
        ({"type": "string"}, "carriage\rreturn \u202e \x00"),
        ({"type": "string", "default": "x"}, ""),
        ({"type": "number"}, 1e300),
        ({"type": "integer"}, 2**70),
        ({"type": "array", "items": {"type": "string"}}, ["a\nb", " spaces "]),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2, 3]),
        ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}, [[True], [False]]),
        ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2, "title": "Two"}]}, 2),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),
        ({}, "5"),
        ({}, "null"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "x", "other": [1]}),
        ({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object"}}}, {"a": {"b": 1}}),
    ],
)
def test_values_that_fields_cannot_show_are_kept(schema: dict[str, Any], value: Any) -> None:
    assert parse_form(schema, "v", submit(schema, value)) == (value, {})


def test_a_form_starts_with_the_defaults() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "Ada"},
            "size": {"type": "object", "properties": {"width": {"type": "integer", "default": 3}}},
            "note": {"type": "string"},
        },
    }
    value, errors = parse_form(schema, "v", submit(schema, ABSENT))
    assert (value, errors) == ({"name": "Ada", "size": {"width": 3}}, {})


def test_errors_are_beside_their_fields_and_entered_texts_stay() -> None:
    schema = {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "name": {"type": "string", "minLength": 3},
            "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
        },
        "required": ["name"],
    }
    sent = [("v/count", "many"), ("v/name", ""), ("v/items#rows", "1"), ("v/items/0/n", "x")]
    _, errors = parse_form(schema, "v", sent)
    assert errors == {
        "v/count": "Must be an integer, got 'many'.",
        "v/name": "This field is required.",
        "v/items/0/n": "Must be a number, got 'x'.",
    }
    shown = show_form(schema, "v", sent, errors)
    html = TEMPLATE.render(field=shown)
    assert 'value="many"' in html
    assert html.count('role="alert"') == 3
    assert parse_form(schema, "v", [("v/name", "ab")]).errors == {"v/name": "'ab' is too short."}


def test_a_boolean_without_a_default_must_be_chosen() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    assert parse_form(schema, "v", []).errors == {"v/ok": "This field is required."}
    assert parse_form(schema, "v", [("v/ok", "false")]).value == {"ok": False}


def test_a_choice_that_is_not_offered_is_refused() -> None:
    assert parse_form({"enum": ["a"]}, "v", [("v", '"b"')]).errors == {"v": "'\"b\"' is not one of ['a']."}


def test_items_are_added_and_removed() -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}}
    sent = encode_value(schema, "v", [{"n": "a"}, {"n": "b"}, {"n": "c"}])
    assert parse_form(schema, "v", change_rows(sent, removed="v/1")).value == [{"n": "a"}, {"n": "c"}]
    longer = change_rows(sent, added="v")
    assert len(show_form(schema, "v", longer).fields) == 4
    assert change_rows(sent, removed="v/9") == sent
    assert parse_form(schema, "v", [("v#rows", "9" * 9)]).value == []


def test_texts_of_a_schema_are_escaped() -> None:
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    schema = {
        "type": "object",
        "title": attack,
        "description": attack,
        "properties": {
            attack: {"type": "string", "title": attack, "description": attack, "default": attack},
            "choice": {"enum": [attack, "b"], "description": f"[x](javascript:alert(1)) {attack}"},
            "long": {"enum": [f"{attack}{number}" for number in range(9)]},
            "rows": {
                "type": "array",
                "items": {"type": "object", "properties": {attack: {"type": "string"}}},
            },
            "json": {"type": "object", "default": {attack: f"</textarea>{attack}"}},
        },
    }
    value = {attack: attack, "rows": [{attack: attack}], "json": {attack: attack}, "choice": attack}
    html = TEMPLATE.render(
        field=show_form(schema, "v", encode_value(schema, "v", value), {"v/choice": attack})
    )
    assert "<script" not in html
    assert "<img" not in html
    assert "javascript:" not in html or 'href="javascript:' not in html
    assert parse_form(schema, "v", submit(schema, value)).errors == {}
